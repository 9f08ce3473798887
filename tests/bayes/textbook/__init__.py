"""Results that textbooks and papers print, found again by the likelihoods of this filter, to the digits printed.

Where a set had to be rebuilt, or a figure printed is not what its formula gives, the docstring of the test says so.
"""
