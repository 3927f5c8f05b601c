"""Which engines can take requests: what their answers say about them, a breaker each, outliers, draining.

``verdict`` weighs the end of an attempt, ``breaker`` counts the weights of one engine, ``outlier`` compares engines,
``origin`` tells a sick engine from a prompt on which the model itself collapses, ``fleet`` holds it all together. All
pure: times are seconds on a clock that is passed in.
"""
