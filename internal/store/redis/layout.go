package redis

import (
	"fmt"
	"strconv"
)

// The layouts that this version knows. Existing data keep their layout; only new data are in the newest.
const (
	// plainTags has plain numbers as tags. Such tags spread badly over a Cluster: of 16 shards three masters have 8, 4 and
	// 4, and of six masters two have none.
	plainTags = 1
	// spreadTags has tags that spread the shards evenly over the slots of a Cluster.
	spreadTags = 2
	// packedBodies has the same tags, and records with packed bodies, which older versions cannot read.
	packedBodies = 3
	// pagedMessages has the same keys and more: new messages are in cells and pages before they are indexed. Older
	// versions do not find such messages.
	pagedMessages = 4
	// namedBrokers has the same keys, and records of messages that name a broker. Older versions refuse these records.
	// Data get this layout only where a coordinator has named brokers.
	namedBrokers = 5
	newestLayout = namedBrokers
)

// layout is the layout of the data, stored with the data.
type layout struct {
	version, shards int
}

// versionOf is the layout as written in Redis; 0 is a layout that this version does not know.
func versionOf(written string) int {
	if version, err := strconv.Atoi(written); err == nil && version >= plainTags && version <= newestLayout {
		return version
	}
	return 0
}

// packs says whether bodies may be packed.
func (l layout) packs() bool { return l.version >= packedBodies }

// hasKeysOf says whether messages have the same keys in both layouts.
func (l layout) hasKeysOf(other layout) bool {
	return l.shards == other.shards && (l.version == plainTags) == (other.version == plainTags)
}

// tags are the text in the braces of each shard's keys.
func (l layout) tags() []string {
	width := max(2, len(strconv.Itoa(l.shards-1)))
	tags := make([]string, l.shards)
	for i := range tags {
		tags[i] = fmt.Sprintf("%0*d", width, i)
		if l.version != plainTags {
			tags[i] = l.spread(i, tags[i])
		}
	}
	return tags
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
