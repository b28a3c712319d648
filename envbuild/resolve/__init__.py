"""Which exact packages: direct requirements and base facts go in, a Resolution comes out."""
