"""How ranks reach each other, and how long a collective takes."""
