"""Baselines of the field, each written from the mathematics of its paper, small, with torch and numpy alone.

bagflip.py    Zhang, Albarghouthi, D'Antoni: BagFlip (NeurIPS 2022); with no noise, bagging (Jia et al., AAAI 2021)
dpa.py        Levine, Feizi: Deep Partition Aggregation (ICLR 2021)
interval.py   the interval method of Abstract Gradient Training (Sosnin et al. 2024), on our interval domain
"""
