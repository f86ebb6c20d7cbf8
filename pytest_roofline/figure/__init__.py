"""The roofline figure: a pure model of it, and what draws that."""
