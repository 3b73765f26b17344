package redis

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestCRC16IsRedisOwn has known answers of CLUSTER KEYSLOT; TestTagsLieWhereRedisSays asks a server.
func TestCRC16IsRedisOwn(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]int{"": 0, "123456789": 12739, "foo": 12182} {
		if got := slot(crc16(0, tag)); got != want {
			t.Errorf("slot of %q: %d, want %d", tag, got, want)
		}
	}
}

func TestSuffixesBeginWithTheShortest(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "", 1: "a", 2: "b", 26: "z", 27: "aa", 28: "ab", 702: "zz", 703: "aaa"} {
		if got := suffix(n); got != want {
			t.Errorf("suffix %d: %q, want %q", n, got, want)
		}
	}
}

// TestTagsStay has the tags word for word: existing data would not be found under other tags.
func TestTagsStay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		layout layout
		want   []string
	}{
		{layout{1}, []string{"00"}},
		{layout{2}, []string{"00b", "01"}},
		{layout{16}, []string{
			"00dd", "01dc", "02d", "03fc", "04c", "05ad", "06bd", "07bc",
			"08bb", "09c", "10c", "11aa", "12bd", "13bc", "14da", "15db",
		}},
	} {
		if got := test.layout.tags(); !slices.Equal(got, test.want) {
			t.Errorf("layout %+v: %q", test.layout, got)
		}
	}
}

// TestShardsLieInTheirParts of the slots, so each has a slot and a name of its own.
func TestShardsLieInTheirParts(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2, 3, 7, 16, 100, 1000, maxShards} {
		for i, tag := range (layout{shards}).tags() {
			at := slot(crc16(0, tag))
			if at < i*slots/shards || at > (i+1)*slots/shards {
				t.Errorf("shard %d of %d has slot %d", i, shards, at)
			}
		}
	}
}

// TestMastersShareTheShards has masters that share the slots as redis-cli --cluster create has them: each as many in a
// row. A master has each shard whose part lies in its slots and none whose part lies outside, so only the two parts at
// its ends can go either way: it has less than two shards more or less than an even share. Where the ends of parts are
// the ends of its slots it has an even share to the shard. By this argument masters could differ by three, but no two
// do, and tags never change.
func TestMastersShareTheShards(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{8, 16, 32, 64} {
		for masters := 2; masters <= 8; masters++ {
			t.Run(fmt.Sprintf("%d on %d", shards, masters), func(t *testing.T) {
				t.Parallel()
				counts := sharesOf(layout{shards}, masters)
				fewest, most, even := slices.Min(counts), slices.Max(counts), float64(shards)/float64(masters)
				apart := 2
				if slots%masters == 0 && shards%masters == 0 {
					apart = 0
				}
				if most-fewest > apart || float64(fewest) <= even-2 || float64(most) >= even+2 {
					t.Errorf("shards of the masters: %v", counts)
				}
			})
		}
	}
}

// sharesOf counts the shards of each of so many masters.
func sharesOf(l layout, masters int) []int {
	each := float64(slots) / float64(masters)
	counts := make([]int, masters)
	for _, tag := range l.tags() {
		at := slot(crc16(0, tag))
		for i := range masters {
			first, next := math.Round(float64(i)*each), math.Round(float64(i+1)*each)
			if float64(at) >= first && float64(at) < next {
				counts[i]++
			}
		}
	}
	return counts
}
