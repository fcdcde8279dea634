"""Does a job fit its devices and hosts?"""
