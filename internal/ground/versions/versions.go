// Package versions says which versions of its servers msghandler is tested with.
package versions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Version is a major, a minor and a patch number.
type Version [3]int

// Parse reads the leading numbers of a version such as 4.3.6 or 3.13.0-rc.1. Missing numbers are 0. ok is false for a
// text that does not begin with a number.
func Parse(text string) (v Version, ok bool) {
	rest := text
	for i := range v {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil {
			return v, i > 0
		}
		v[i] = n
		var more bool
		if rest, more = strings.CutPrefix(rest[digits:], "."); !more {
			break
		}
	}
	return v, true
}

// Before reports whether v comes before other.
func (v Version) Before(other Version) bool { return slices.Compare(v[:], other[:]) < 0 }

// String is MAJOR.MINOR, with a patch number other than 0.
func (v Version) String() string {
	text := fmt.Sprintf("%d.%d", v[0], v[1])
	if v[2] != 0 {
		text += fmt.Sprintf(".%d", v[2])
	}
	return text
}

// Server is a server product, with the range of tested versions.
type Server struct {
	// Name is the product's name.
	Name string
	// Oldest is the first supported version.
	Oldest Version
	// Newest is the newest tested minor version. Later versions are expected to work.
	Newest Version
}

// The servers that msghandler supports.
var (
	RabbitMQ = Server{Name: "RabbitMQ", Oldest: Version{3, 10}, Newest: Version{4, 3}}
	Redis    = Server{Name: "Redis", Oldest: Version{7, 0}, Newest: Version{8, 0}}
	Valkey   = Server{Name: "Valkey", Oldest: Version{8, 0}, Newest: Version{9, 1}}
)

// TooOld reports whether v is older than every supported version.
func (s Server) TooOld(v Version) bool { return v.Before(s.Oldest) }

// Untested reports whether v is of a later minor version than the tests run on.
func (s Server) Untested(v Version) bool { return s.Newest.Before(Version{v[0], v[1]}) }
