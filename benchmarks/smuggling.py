"""Does any end of data hide a mail from the filter, or make a real Postfix behind it receive what was not judged?

The whole product: each line end, dot and line end, at each place of a mail, with another mail's commands behind it in
the same packet, once for each way to treat lone line ends. What Postfix receives must be what RFC 5321 says was sent,
and what the journal says was judged: messages, envelopes, sizes and bytes.

    python benchmarks/smuggling.py [--result FILE]

Needs root and Postfix; some ten minutes on two cores. The tests do a part of it.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

from results import write_result

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers are those of the tests

from tests.hostile.chain_smtp import SETTINGS, chain
from tests.hostile.smuggling_smtp import DOTS, ENDS, PLACES, case, check

AT_ONCE = 200
"""Cases that are sent before what arrived is compared."""


def main() -> None:
    parser = argparse.ArgumentParser(description="try every end of data against a real Postfix behind the relay")
    parser.add_argument("--result", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    cases = [
        case(f"{first}, {dot}, {second}, {place}", ENDS[first] + DOTS[dot] + ENDS[second], place)
        for place, first, dot, second in product(PLACES, ENDS, DOTS, ENDS)
    ]
    rows = []
    with chain() as servers:
        for setting in SETTINGS:
            earlier, began = len(servers.sink.received), time.monotonic()
            for start in range(0, len(cases), AT_ONCE):
                check(servers, setting, cases[start : start + AT_ONCE])
                print(f"{setting}: {min(start + AT_ONCE, len(cases))} of {len(cases)}", file=sys.stderr)
            received = len(servers.sink.received) - earlier
            seconds = time.monotonic() - began
            rows.append(f"| {setting} | {len(cases):,} | {received:,} | {received:,} | 0 | {seconds:.0f} |")
    text = "\n".join([
        f"{len(ENDS)} line ends before and behind {len(DOTS)} dots, at {len(PLACES)} places of a mail. The run ends at",
        "the first message that differs in envelope, size or a byte from what RFC 5321 says was sent.",
        "",
        "| setting | cases | messages judged | received by Postfix | different | seconds |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip
    print(text)
    if options.result:
        write_result(options.result, "Smuggling: every end of data against Postfix", __file__, text)


if __name__ == "__main__":
    main()
