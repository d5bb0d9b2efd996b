"""Speed, as ratios in one run: the plain loop of the field, ART, and the engines, in turns on one machine."""
