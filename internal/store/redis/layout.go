package redis

import (
	"fmt"
	"strconv"
)

// layoutVersion is the layout of the data, stored with the data.
const layoutVersion = "1"

// layout is the number of shards of the data, stored with the data.
type layout struct{ shards int }

// misfit is why a coordinator cannot work on existing data, and the remedy. Without a name it can.
type misfit struct{ name, what, remedy string }

// misfitOf compares the data, whose layout is written in meta, with this layout and the configured shards.
func misfitOf(meta map[string]string, l layout) misfit {
	switch written, shards := meta[layoutField], meta[shardsField]; {
	case written != "" && written != layoutVersion:
		return misfit{
			"layout", fmt.Sprintf("holds data of layout %s, and this version knows layout %s", written, layoutVersion),
			"run the version that wrote them, or set another redis.prefix for new data",
		}
	case shards != "" && shards != strconv.Itoa(l.shards):
		return misfit{
			"shards", fmt.Sprintf("holds data in %s shards, and %d are configured", shards, l.shards),
			"set redis.shards to " + shards + ", or another redis.prefix for new data",
		}
	}
	return misfit{}
}

// tags are the text in the braces of each shard's keys.
func (l layout) tags() []string {
	tags := make([]string, l.shards)
	for i := range tags {
		tags[i] = l.spread(i, l.number(i))
	}
	return tags
}

// number is the number of shard i, with as many digits as the last one has.
func (l layout) number(i int) string {
	return fmt.Sprintf("%0*d", max(2, len(strconv.Itoa(l.shards-1))), i)
}

// spread is the tag of shard i: its number, and the first suffix with which its slot lies in the i-th of so many equal
// parts of the slots as there are shards. So masters that share the slots evenly, each with slots in a row, share the
// shards evenly, however many they are.
func (l layout) spread(i int, number string) string {
	crc := crc16(0, number)
	for n := 0; ; n++ {
		if suffix := suffix(n); slot(crc16(crc, suffix))*l.shards/slots == i {
			return number + suffix
		}
	}
}

// suffix is the n-th of: none, a, b, ..., z, aa, ab, ...
func suffix(n int) string {
	const letters = 'z' - 'a' + 1
	if n == 0 {
		return ""
	}
	return suffix((n-1)/letters) + string(rune('a'+(n-1)%letters))
}

// slots is the number of slots of a Cluster.
const slots = 16384

// slot is the Cluster's slot of keys whose tag has this CRC16.
func slot(crc uint16) int { return int(crc % slots) }

// crc16 extends crc, 0 at first, by a text. The algorithm is the CRC16 of Redis Cluster (XMODEM).
func crc16(crc uint16, text string) uint16 {
	const polynomial = 0x1021
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*polynomial
		}
	}
	return crc
}
