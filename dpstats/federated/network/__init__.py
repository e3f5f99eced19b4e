"""Sites and who asks them on several machines, through a Flower link; needs ``dpstats[flower]``."""

from dpstats.federated.network.asking import Link
from dpstats.federated.network.serving import serve
from dpstats.federated.network.wire import Address

__all__ = ["Address", "Link", "serve"]
