"""The configuration: one TOML file and the environment become frozen settings, each key checked against its bounds.

Nothing is read at import, and a wrong key or value is an error that names file, key and value.
Imports: errors, system, mail, bayes and stores. Start with sections for the keys, and settings for how they are read.
"""
