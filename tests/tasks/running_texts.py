"""Small annotated texts for the tests of word segmentation: English, French with contractions, words with blanks."""

from __future__ import annotations

from regard.text.running_text import RunningText, SurfaceToken, align_tokens, join_tokens


def annotated(notation: str) -> RunningText:
    """The text that a notation describes: tokens separated by blanks, ``~`` where no space stands between two, forms
    of several words behind ``=``, separated by ``+``, and ``_`` for a blank inside of a word."""
    tokens = []
    for item in notation.split(" "):
        parts = item.split("~")
        for number, part in enumerate(parts, start=1):
            surface, _, forms = part.replace("_", " ").partition("=")
            tokens.append(SurfaceToken(surface, tuple(forms.split("+")) if forms else (surface,), number == len(parts)))
    text = align_tokens(join_tokens(tokens), tokens)
    assert text is not None
    return text


ENGLISH = [
    annotated(line)
    for line in (
        "I don't=do+n't know~.",
        "She didn't=did+n't go to the U.S. yesterday~.",
        "We can't=ca+n't see it~, can we~?",
        "He cannot=can+not come~!",
        "They won't=wo+n't see the U.S. team~.",
        "See http://a.org/b-c.html for more~.",
        "The site www.news.com is down~.",
        "It's=It+'s a well~-~known fact~.",
        "That's=That+'s what he said~.",
        "You haven't=have+n't seen the film~.",
        "Bush's=Bush+'s plan~: go~.",
        "It wasn't=was+n't good~.",
        "A can of beans~, please~.",
        "The don is not in~.",
    )
]
FRENCH = [
    annotated(line)
    for line in (
        "Il vient du=de+le nord~.",
        "Le prix du=de+le pain est 10_000 euros~.",
        "Il parle des=de+les enfants~.",
        "Il parle des=de+les gens~.",
        "Il voit des enfants~.",
        "Il voit des gens~.",
        "Elle va au=à+le marché~.",
        "Du=De+le nord~, 20_000 autres viennent~.",
    )
]
