package deadletter

import (
	"math"
	"strconv"
	"time"
)

// Count reads a text that counts something, such as the header of the attempt. Any client of the broker may write such
// a header. A text that is no number, and a negative number, is 0. The largest result still can grow: the count of the
// next copy is not negative.
func Count(text string) int {
	n, _ := strconv.ParseInt(text, 10, 32) // out of range: the nearest number
	return max(int(n), 0)
}

// Grown is the count after one more. The largest count stays.
func Grown(count int) int64 { return min(int64(max(count, 0)), math.MaxInt32-1) + 1 }

// Time is a time of any client in UTC, or zero where the time has no year from 1 to 9999: JSON and RFC 3339 cannot
// express such a time. A client that writes milliseconds where the broker expects seconds gets the year 55,000.
func Time(at time.Time) time.Time {
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}
	}
	return at
}

// ParseTime reads a text of RFC 3339, within the bounds of Time.
func ParseTime(text string) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, text)
	at = Time(at)
	return at, err == nil && !at.IsZero()
}
