"""One function per numbered statement, as it is printed and as it is corrected.

A module gathers the statements of one section. A function is named after its statement:
``lemma_3_14_printed`` is what the source prints, ``lemma_3_14_corrected`` what holds; where
the printed statement is right there is one function, ``lemma_3_15``. Pages, figures and tests
import the same function, so a formula is typed once.
"""
