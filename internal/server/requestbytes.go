package server

import "math"

const (
	leastRequestBytes = 32 << 20
	usualRequestBytes = 256 << 20
)

// RequestBytes is how many bytes all requests together may hold: a quarter of the limit of memory (GOMEMLIMIT), at
// least 32 MiB; and 256 MiB where there is no limit.
func RequestBytes(memoryLimit int64) int {
	if memoryLimit == math.MaxInt64 {
		return usualRequestBytes
	}
	return int(max(memoryLimit/4, leastRequestBytes))
}
