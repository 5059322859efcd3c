"""From ids to rankings and back: queries, filters, search and its result (section 2.2 of the article).

Everything that answers with lists of items goes through this package: `recommend`, indexes, live users, two
stages, batch recommendations, and evaluation. It knows models only by the protocols in `shortlist.ranking.protocols`.
"""
