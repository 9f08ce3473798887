"""One TOML file, and the environment, to frozen settings that are passed on; each key with its bounds.

Nothing is read at import, and a wrong key is an error that names file, key and value.
Imports: errors, system, mail, bayes and stores. Start with sections for the keys, and settings for how they are read.
"""
