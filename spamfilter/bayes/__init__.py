"""The model: the tokens of a Message, counts of them, likelihoods, voices, a probability and a verdict.

Pure: no file, no socket, no clock. A new likelihood is a file and a row in likelihoods/, a new token feature a
function and a row of FEATURES in tokens. compiled/ has tokens and scores in C, with the same results.
Imports: errors, system and mail. Start with voices for the sum of log-odds, and likelihoods/likelihood for a summand.
"""
