"""A synthetic parallel corpus, English and French, that Babel formats from Unicode's locale data (CLDR).

Dates, times, durations, money, quantities and numbers, alone or in a short sentence: tens of thousands of pairs
without a download, for the demo to train on. Not a corpus to learn French from.
The English text always determines the French one: both sides show the same facts (no two-digit years; no week
numbers, which the two languages count differently), and no two forms share their English.
In French the spaces are CLDR's own (no-break U+00A0, narrow no-break U+202F, thin U+2009); in English they are plain,
as people type them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from random import Random
from typing import Literal, get_args

from regard.errors import MissingExtra
from regard.text.pairs import Pair

try:
    from babel import Locale, dates, lists, numbers, units
except ImportError as error:
    raise MissingExtra("the synthetic corpus", "demo") from error

Phrase = Callable[[Locale], str]  # formats the same fact in either language
PhraseGenerator = Callable[[Random], Phrase]
Length = Literal["long", "short", "narrow"]
TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

ENGLISH, FRENCH = Locale("en"), Locale("fr")

DATE_SKELETONS = ("yMMMEd", "MMMEd", "MMMMd", "MMMd", "yMd", "yMd", "yMMMM", "yMMM", "yQQQQ", "yQQQ")
TIME_SKELETONS = {ENGLISH: "hm", FRENCH: "Hm"}  # 12-hour clock in English, 24-hour clock in French
SECONDS_PER_UNIT = dict(dates.TIMEDELTA_UNITS)
DURATION_UNITS = (("minute", "second", 59), ("hour", "minute", 59), ("day", "hour", 23), ("year", "month", 11))

CURRENCIES = ("USD", "EUR", "GBP", "JPY", "INR", "CAD", "AUD", "BRL", "MXN", "NZD")
NAMED_CURRENCIES = (*CURRENCIES, "CHF", "SEK", "DKK", "PLN")
CURRENCY_CODE_PATTERNS = {ENGLISH: "¤¤\u00a0#,##0.00", FRENCH: "#,##0.00\u00a0¤¤"}

UNITS = {
    "length": ("millimeter", "centimeter", "meter", "kilometer", "inch", "mile", "light-year"),
    "mass": ("gram", "kilogram", "tonne", "ounce", "pound"),
    "volume": ("milliliter", "liter", "cubic-meter", "gallon", "teaspoon"),
    "area": ("square-meter", "square-kilometer", "square-foot", "hectare"),
    "temperature": ("celsius", "fahrenheit"),
    "speed": ("kilometer-per-hour", "mile-per-hour", "meter-per-second", "knot"),
    "digital": ("byte", "kilobyte", "megabyte", "gigabyte", "terabyte"),
    "duration": ("millisecond", "second", "minute", "hour", "day", "week", "month", "year"),
    "power": ("watt", "horsepower"),
}

# CLDR names cities after their time zones. In French none of these takes an article.
TIME_ZONES = (
    *("Europe/London", "Europe/Athens", "Europe/Lisbon", "Europe/Vienna", "Europe/Warsaw", "Europe/Brussels"),
    *("Europe/Moscow", "Europe/Copenhagen", "Europe/Paris", "Europe/Madrid", "Africa/Algiers", "Asia/Beirut"),
    *("Asia/Seoul", "Asia/Singapore", "Asia/Tokyo", "America/New_York", "America/Mexico_City"),
)


def generate_corpus(n_train: int, n_test: int, seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Return training and test pairs, no English text twice; the same seed gives the same pairs."""
    rng = Random(seed)
    targets: dict[str, str] = {}
    while len(targets) < n_train + n_test:
        source, target = sample_pair(rng)[1]
        targets[source] = target
    pairs = [Pair(*item) for item in targets.items()]
    rng.shuffle(pairs)
    return pairs[n_test:], pairs[:n_test]


def sample_pair(rng: Random) -> tuple[PhraseGenerator, Pair]:
    """Sample a generator by its weight, and a pair from it."""
    (generator,) = rng.choices(list(GENERATOR_WEIGHTS), list(GENERATOR_WEIGHTS.values()))
    phrase = generator(rng)
    return generator, Pair(_replace_special_spaces(phrase(ENGLISH)), phrase(FRENCH))


def _replace_special_spaces(text: str) -> str:
    """Return the text with plain spaces."""
    return re.sub(r"[\u00a0\u202f\u2009]", " ", text)


def write_corpus(directory: Path, n_train: int = 40_000, n_test: int = 1_000, seed: int = 0) -> None:
    """Write the corpus as ``train.en train.fr test.en test.fr``, one text a line."""
    directory.mkdir(parents=True, exist_ok=True)
    train, test = generate_corpus(n_train, n_test, seed)
    for name, pairs in (("train", train), ("test", test)):
        _write_lines(directory / f"{name}.en", [pair.source for pair in pairs])
        _write_lines(directory / f"{name}.fr", [pair.target for pair in pairs])


def _write_lines(path: Path, texts: list[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")


def date_in_words(rng: Random) -> Phrase:
    """Friday, March 14, 2025; March 14, 2025; Mar 14, 2025."""
    day, style = _random_date(rng), rng.choice(("full", "long", "medium"))
    return lambda locale: dates.format_date(day, style, locale)


def date_by_skeleton(rng: Random) -> Phrase:
    """Fri, Mar 14; 3/14/2025; March 2025; 1st quarter 2025."""
    day, skeleton = _random_date(rng), rng.choice(DATE_SKELETONS)
    return lambda locale: dates.format_skeleton(skeleton, day, locale=locale)


def date_range(rng: Random) -> Phrase:
    """Mar 4 – 9, 2025; Mar 4 – Apr 2, 2025."""
    first = _random_date(rng)
    last = min(first + timedelta(days=rng.randint(1, 40)), first.replace(month=12, day=31))
    return lambda locale: dates.format_interval(first, last, "yMMMd", locale=locale)


def clock_time(rng: Random) -> Phrase:
    """3:07 PM; 15:07."""
    moment, style = _random_datetime(rng), rng.choice(("short", "short", "HH:mm"))
    return lambda locale: dates.format_time(moment, style, locale=locale)


def weekday_and_time(rng: Random) -> Phrase:
    """Fri 3:07 PM."""
    moment = _random_datetime(rng)
    return lambda locale: dates.format_skeleton("E" + TIME_SKELETONS[locale], moment, locale=locale)


def time_range(rng: Random) -> Phrase:
    """9:15 AM – 5:30 PM."""
    first, last = (time(*divmod(minute, 60)) for minute in sorted(rng.sample(range(0, 24 * 60, 15), 2)))
    return lambda locale: dates.format_interval(first, last, TIME_SKELETONS[locale], locale=locale)


def date_and_time(rng: Random) -> Phrase:
    """Mar 14, 2025, 3:07 PM."""
    moment = _random_datetime(rng)
    return lambda locale: locale.datetime_formats["medium"].format(
        dates.format_time(moment, "short", locale=locale), dates.format_date(moment, "medium", locale)
    )


def relative_time(rng: Random) -> Phrase:
    """in 45 days; 45 days ago; in 45d."""
    unit: TimeUnit = rng.choice(get_args(TimeUnit))
    length: Length = rng.choice(("long", "long", "narrow"))
    delta = timedelta(seconds=SECONDS_PER_UNIT[unit] * rng.randint(1, 99) * rng.choice((1, -1)))
    return lambda locale: dates.format_timedelta(
        delta, granularity=unit, threshold=inf, add_direction=True, format=length, locale=locale
    )


def duration(rng: Random) -> Phrase:
    """3 hr, 25 min."""
    return _make_duration(rng, "short", "unit-short")


def duration_in_words(rng: Random) -> Phrase:
    """3 hours, 25 minutes."""
    return _make_duration(rng, "long", "unit")


def money(rng: Random) -> Phrase:
    """$1,234.50; USD 1,234.50."""
    amount, currency = rng.randint(1, 10 ** rng.randint(3, 6)) / 100, rng.choice(CURRENCIES)
    patterns = rng.choice(({}, CURRENCY_CODE_PATTERNS))
    return lambda locale: numbers.format_currency(amount, currency, patterns.get(locale), locale)


def money_in_words(rng: Random) -> Phrase:
    """1,234 US dollars."""
    amount, currency = _random_integer(rng), rng.choice(NAMED_CURRENCIES)
    return lambda locale: numbers.format_currency(
        amount, currency, locale=locale, format_type="name", currency_digits=False
    )


def compact_money(rng: Random) -> Phrase:
    """$12.3M; €4.6B."""
    amount, currency = _random_large_number(rng), rng.choice(CURRENCIES)
    return lambda locale: numbers.format_compact_currency(amount, currency, locale=locale, fraction_digits=1)


def quantity(rng: Random) -> Phrase:
    """12.5 kilometers; 12.5 km; 12.5km."""
    length: Length = rng.choice(("long", "long", "short", "short", "narrow"))
    value, unit = _random_decimal(rng), rng.choice(_unambiguous_units()[length])
    return lambda locale: units.format_unit(value, unit, length, locale=locale)


def number(rng: Random) -> Phrase:
    """1,234; 1,234.56; -0.8."""
    value = rng.randint(1, 10 ** rng.randint(2, 6)) / rng.choice((1, 100, -100))
    return lambda locale: numbers.format_decimal(value, locale=locale)


def compact_number(rng: Random) -> Phrase:
    """12.3 million; 4 billion."""
    value = _random_large_number(rng)
    return lambda locale: numbers.format_compact_decimal(value, format_type="long", locale=locale, fraction_digits=1)


def percentage(rng: Random) -> Phrase:
    """12.5%."""
    value = rng.randint(1, 999) / 1000
    return lambda locale: numbers.format_percent(value, locale=locale, decimal_quantization=False)


def sentence(rng: Random) -> Phrase:
    """The train to London leaves at 3:07 PM."""
    english, french, *slots = rng.choice(SENTENCE_TEMPLATES)
    template, phrases = {ENGLISH: english, FRENCH: french}, [slot(rng) for slot in slots]
    return lambda locale: template[locale].format(*(phrase(locale) for phrase in phrases))


def city(rng: Random) -> Phrase:
    """London."""
    zone = rng.choice(TIME_ZONES)
    own_name = zone.split("/")[-1].replace("_", " ")
    return lambda locale: locale.time_zones.get(zone, {}).get("city", own_name)


def full_date(rng: Random) -> Phrase:
    """Friday, March 14, 2025; never the first of a month, which a French sentence writes 1er and CLDR does not."""
    day = _random_date(rng)
    day = max(day, day.replace(day=2))
    return lambda locale: dates.format_date(day, "full", locale)


def weekday(rng: Random) -> Phrase:
    """Friday."""
    day = _random_date(rng)
    return lambda locale: dates.format_date(day, "EEEE", locale)


def time_of_day(rng: Random) -> Phrase:
    """3:07 PM."""
    moment = _random_datetime(rng)
    return lambda locale: dates.format_time(moment, "short", locale=locale)


def make_quantity_generator(unit: str, minimum: int, maximum: int) -> PhraseGenerator:
    """Return a generator of quantities of one unit, written in full: 12.5 kilograms."""

    def generate_quantity(rng: Random) -> Phrase:
        value = rng.randint(minimum * 10, maximum * 10) / 10
        return lambda locale: units.format_unit(value, unit, locale=locale)

    return generate_quantity


GENERATOR_WEIGHTS: dict[PhraseGenerator, int] = {
    date_in_words: 14,
    date_by_skeleton: 14,
    date_range: 4,
    clock_time: 6,
    weekday_and_time: 4,
    time_range: 4,
    date_and_time: 6,
    relative_time: 4,
    duration: 2,
    duration_in_words: 3,
    money: 6,
    money_in_words: 5,
    compact_money: 2,
    quantity: 15,
    number: 2,
    compact_number: 1,
    percentage: 1,
    sentence: 20,
}

SENTENCE_TEMPLATES: tuple[tuple[str, str, *tuple[PhraseGenerator, ...]], ...] = (
    ("The photo dates from {}.", "La photo date du {}.", full_date),
    ("The contract ends on {}.", "Le contrat prend fin le {}.", full_date),
    ("The meeting is on {} at {}.", "La réunion a lieu {} à {}.", weekday, time_of_day),
    ("The train to {} leaves at {}.", "Le train pour {} part à {}.", city, time_of_day),
    ("The plane lands in {} at {}.", "L’avion atterrit à {} à {}.", city, time_of_day),
    ("It is {} in {}.", "Il fait {} à {}.", make_quantity_generator("temperature-celsius", 2, 40), city),
    ("The bag weighs {}.", "Le sac pèse {}.", make_quantity_generator("mass-kilogram", 2, 90)),
    ("The road is {} long.", "La route fait {} de long.", make_quantity_generator("length-kilometer", 2, 900)),
    ("The tank holds {}.", "Le réservoir contient {}.", make_quantity_generator("volume-liter", 2, 90)),
    ("The journey lasts {}.", "Le voyage dure {}.", duration_in_words),
    ("The journey costs {}.", "Le voyage coûte {}.", money_in_words),
    ("The company is worth {}.", "L’entreprise vaut {}.", compact_money),
    ("Prices rose by {}.", "Les prix ont augmenté de {}.", percentage),
)


@cache
def _unambiguous_units() -> dict[Length, list[str]]:
    """Return the units of each length that CLDR has and whose English is unique."""
    unambiguous: dict[Length, list[str]] = {"long": [], "short": [], "narrow": []}
    taken: set[str] = set()
    for length, unit in product(
        unambiguous, (f"{category}-{name}" for category, names in UNITS.items() for name in names)
    ):
        english = {units.format_unit(number, unit, length, locale=ENGLISH) for number in (1, 5)}
        known = unit not in units.format_unit(5, unit, length, locale=FRENCH)  # else Babel formats the key itself
        if known and taken.isdisjoint(english):
            unambiguous[length].append(unit)
            taken |= english
    return unambiguous


def _make_duration(rng: Random, length: Length, style: Literal["unit", "unit-short"]) -> Phrase:
    larger, smaller, maximum = rng.choice(DURATION_UNITS)
    parts = ((rng.randint(1, 99), f"duration-{larger}"), (rng.randint(1, maximum), f"duration-{smaller}"))
    return lambda locale: lists.format_list(
        [units.format_unit(*part, length, locale=locale) for part in parts], style, locale
    )


def _random_date(rng: Random) -> date:
    return _random_datetime(rng).date()


def _random_datetime(rng: Random) -> datetime:
    return datetime(1950, 1, 1) + timedelta(days=rng.randrange(100 * 365), minutes=rng.randrange(24 * 60))


def _random_integer(rng: Random) -> int:
    return rng.randint(1, 10 ** rng.randint(1, 4))


def _random_decimal(rng: Random) -> float:
    return _random_integer(rng) / rng.choice((1, 10))


def _random_large_number(rng: Random) -> int:
    """Return millions, billions or trillions, to one decimal."""
    return rng.randint(10, 999) * 10 ** rng.choice((5, 8, 11))
