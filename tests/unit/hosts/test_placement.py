"""Properties of placement, which is a pure function."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.sandbox_resources import Need, profile_needs, total_need
from codesdk.hosts.host import Capacity, HostRecord, HostState
from codesdk.hosts.placement import Placement, PlacementRequest, Unschedulable, place, unmet_requirement
from codesdk.sandbox.profiles.profile import Profile

AMOUNTS = st.integers(0, 8)
LABELS = st.dictionaries(st.sampled_from(["zone", "gpu"]), st.sampled_from(["a", "b"]), max_size=2)


def host(number=0, **fields):
    given_fields = {
        "id": f"hst_{number:026}",
        "name": f"h{number}",
        "engine": f"e{number}",
        "state": HostState.ACTIVE,
        "away": False,
        "capacity": Capacity(),
        "reserved": Need(),
        "sessions": 0,
        "labels": {},
        "images": {"base": f"sha256:{number}"},
        "generation": 1,
        "heartbeat": 0,
        "registered_at": 0.0,
    }
    return HostRecord(**(given_fields | fields))


@st.composite
def some_hosts(draw):
    return [
        host(
            number,
            state=draw(st.sampled_from(HostState)),
            away=draw(st.booleans()),
            capacity=Capacity(memory_bytes=draw(AMOUNTS), millicpus=draw(AMOUNTS), sessions=draw(AMOUNTS)),
            reserved=Need(draw(AMOUNTS), draw(AMOUNTS)),
            sessions=draw(AMOUNTS),
            labels=draw(LABELS),
            images={"base": f"sha256:{number}"} if draw(st.booleans()) else {},
        )
        for number in range(draw(st.integers(0, 6)))
    ]


wants = st.builds(
    PlacementRequest, image=st.just("base"), labels=LABELS, need=st.builds(Need, st.integers(1, 4), st.integers(1, 4))
)


@given(some_hosts(), wants)
def test_a_session_goes_only_where_nothing_is_lacking_and_nowhere_only_where_all_lack(hosts, want):
    fitting = {each.id for each in hosts if unmet_requirement(each, want) is None}
    match place(hosts, want):
        case Placement() as placed:
            assert placed.host in fitting
        case Unschedulable() as nowhere:
            assert not fitting
            assert sum(nowhere.missing.values()) == len(hosts)


@given(some_hosts(), wants)
def test_who_takes_it_has_room_for_it(hosts, want):
    placed = place(hosts, want)
    if isinstance(placed, Unschedulable):
        return
    found = next(each for each in hosts if each.id == placed.host)
    assert found.state is HostState.ACTIVE
    assert not found.away or all(each.away or unmet_requirement(each, want) for each in hosts)
    assert placed.image == found.images[want.image]
    assert want.labels.items() <= found.labels.items()
    has, takes = found.capacity, found.reserved
    assert not has.memory_bytes or takes.memory_bytes + want.need.memory_bytes <= has.memory_bytes
    assert not has.millicpus or takes.millicpus + want.need.millicpus <= has.millicpus
    assert not has.sessions or found.sessions < has.sessions


@given(some_hosts(), wants, st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_read_changes_nothing(hosts, want, chance):
    shuffled = list(hosts)
    chance.shuffle(shuffled)
    assert place(shuffled, want) == place(hosts, want)


def test_the_least_full_host_takes_it():
    full = host(1, capacity=Capacity(memory_bytes=100), reserved=Need(50), sessions=1)
    empty = host(2, capacity=Capacity(memory_bytes=1000), reserved=Need(100), sessions=9)
    assert place([full, empty], PlacementRequest(image="base", labels={}, need=Need(10))).host == empty.id


def test_of_equals_the_one_with_the_fewest_sessions_takes_it_then_the_lower_id():
    hosts = [host(1, sessions=2), host(2, sessions=1), host(3, sessions=1)]
    assert place(hosts, PlacementRequest(image="base", labels={}, need=Need())).host == hosts[1].id


def test_each_host_is_counted_for_the_first_thing_that_it_lacks():
    hosts = [
        host(1, state=HostState.DRAINING, images={}),
        host(2, state=HostState.LOST),
        host(4, images={}),
        host(5, labels={"zone": "b"}),
        host(6, labels={"zone": "a"}, capacity=Capacity(memory_bytes=1)),
        host(7, labels={"zone": "a"}, capacity=Capacity(millicpus=1)),
        host(8, labels={"zone": "a"}, capacity=Capacity(sessions=1), sessions=1),
    ]
    nowhere = place(hosts, PlacementRequest(image="base", labels={"zone": "a"}, need=Need(2, 2)))
    missing = ("cpu", "draining", "image", "labels", "lost", "memory", "sessions")
    assert nowhere == Unschedulable(missing=dict.fromkeys(missing, 1))


def test_a_profile_takes_its_memory_with_swap_its_cpus_and_its_workspace():
    profile = Profile(memory_bytes=2**30, swap_bytes=2**29, cpus=1.5, workspace_bytes=7)
    need = profile_needs(profile.model_dump())
    assert need == Need(2**30 + 2**29, 1500, 7)
    assert total_need([(need, 2), (Need(1, 1, 1), 1)]) == Need(2 * need.memory_bytes + 1, 3001, 15)
