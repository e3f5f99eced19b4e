"""Front door: what a user calls, from a formula to a fit. `door` alone opens holders of rows."""
