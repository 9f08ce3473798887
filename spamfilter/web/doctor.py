"""The findings of `doctor`, without and with a probe."""

from starlette.responses import Response

from spamfilter.doctor import Diagnosis, Examination, examine
from spamfilter.web.site import Site, Visit, shown


def doctor(visit: Visit) -> Response:
    """The findings without a probe."""
    return shown(visit, "doctor", diagnosis=examined(visit.site, False), canary=False)


def probed(visit: Visit) -> Response:
    """The findings with a probe, which leaves no trace in counts or statistics."""
    return shown(visit, "doctor", diagnosis=examined(visit.site, True), canary=True)


def examined(site: Site, canary: bool) -> Diagnosis:
    """Run `doctor`; one run at a time."""
    with site.busy:
        return examine(Examination(site.settings, site.file), () if canary else ("canary",))
