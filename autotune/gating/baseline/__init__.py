"""Does a record still describe a config?"""
