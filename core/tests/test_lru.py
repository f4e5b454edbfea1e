"""LruCache: what is used last stays, what is dropped is reported, and threads may share it."""

from concurrent.futures import ThreadPoolExecutor

from dovetail.lru import LruCache


def test_the_least_recently_used_is_dropped_first() -> None:
    dropped: list[str] = []
    cache: LruCache[int, str] = LruCache(2, drop=dropped.append)
    cache.put(1, "one")
    cache.put(2, "two")
    assert cache.get(1) == "one"
    cache.put(3, "three")
    assert dropped == ["two"]
    assert (cache.get(1), cache.get(2), cache.get(3)) == ("one", None, "three")
    assert cache.latest == "three"
    assert list(cache.copy()) == [1, 3]


def test_a_value_put_again_is_the_latest_and_drops_nothing() -> None:
    dropped: list[str] = []
    cache: LruCache[int, str] = LruCache(2, drop=dropped.append)
    for key in (1, 2, 1):
        cache.put(key, str(key))
    assert dropped == []
    assert list(cache.copy()) == [2, 1]


def test_clear_returns_the_values_and_drops_none() -> None:
    dropped: list[str] = []
    cache: LruCache[int, str] = LruCache(2, drop=dropped.append)
    assert (cache.clear(), cache.latest) == ([], None)
    cache.put(1, "one")
    cache.put(2, "two")
    assert cache.clear() == ["one", "two"]
    assert (cache.copy(), dropped) == ({}, [])


def test_threads_never_see_more_than_its_size() -> None:
    dropped: list[int] = []
    cache: LruCache[int, int] = LruCache(8, drop=dropped.append)

    def use(start: int) -> int:
        largest = 0
        for number in range(start, start + 1000):
            cache.put(number, number)
            assert cache.get(number) in (number, None)
            largest = max(largest, len(cache.copy()))
        return largest

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(use, range(0, 8000, 1000))) == 8
    assert sorted([*dropped, *cache.copy().values()]) == list(range(8000))
