package audit

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/escape"
)

// The bytes that the parts of a record may have. A kept record has about 9 KiB at most.
const (
	maxName   = 300
	maxFilter = 2000
	maxText   = 500
	// maxNames and maxNamesBytes bound the names of a kept record. The log has all of them.
	maxNames, maxNamesBytes = 100, 4000
	// maxDestinationsBytes bounds the destinations of a kept record, likewise.
	maxDestination, maxDestinationsBytes = 700, 2000
	// maxRaw is how much of a text is looked at.
	maxRaw = 2000
)

// secrets are texts that may hold a secret, and what stays of them.
var secrets = []struct {
	text *regexp.Regexp
	stay string
}{
	// A password may hold @ and /, so all up to the last @ is hidden.
	{regexp.MustCompile(`://\S*@`), "://xxxxx@"},
	{regexp.MustCompile(`(?i)(bearer|basic)[\s:]+\S+`), "$1 xxxxx"},
	{regexp.MustCompile(`\bmh_[\w-]+`), "xxxxx"},                  // a token of the token file
	{regexp.MustCompile(`eyJ[\w-]*\.[\w-]*(\.[\w-]*)?`), "xxxxx"}, // a JSON Web Token
	{regexp.MustCompile(`(?i)(password|passwd|secret|token|code)=[^\s&]+`), "$1=xxxxx"},
}

// bounded is the record with texts of maxRaw bytes at most, which pin no longer ones.
func (r Record) bounded() Record {
	action := string(r.Action)
	for _, s := range []*string{&r.By, &r.From, &action, &r.Producer, &r.Filter, &r.Reason, &r.Cause} {
		if len(*s) > maxRaw {
			*s = strings.Clone((*s)[:maxRaw])
		}
	}
	r.Action = Action(action)
	return r
}

// clean bounds the texts of a record, makes invisible characters visible, and hides secrets.
func (r Record) clean() Record {
	r.By, r.From = text(r.By, maxName), text(r.From, maxName)
	r.Producer = text(r.Producer, maxName)
	r.Action = Action(text(string(r.Action), maxName))
	r.Filter = text(r.Filter, maxFilter)
	r.Reason, r.Cause = text(r.Reason, maxText), text(r.Cause, maxText)
	r.Names, r.Destinations = linesOf(r.Names, maxName), linesOf(r.Destinations, maxDestination)
	if r.Count == 0 {
		r.Count = int64(len(r.Names))
	}
	return r
}

// kept is the record as Redis keeps it: with the first names and destinations only.
func (r Record) kept() Record {
	r.Names = firstOf(r.Names, maxNames, maxNamesBytes)
	first := firstOf(r.Destinations, len(r.Destinations), maxDestinationsBytes)
	if more := len(r.Destinations) - len(first); more > 0 {
		first = append(slices.Clone(first), fmt.Sprintf("and %d more destinations, which the log names", more))
	}
	r.Destinations = first
	return r
}

// firstOf are the first texts, within a number and within a number of bytes.
func firstOf(texts []string, most, mostBytes int) []string {
	bytes := 0
	for i, text := range texts {
		if bytes += len(text); i == most || bytes > mostBytes {
			return texts[:i]
		}
	}
	return texts
}

// linesOf are texts as one line each, of a number of bytes at most.
func linesOf(texts []string, most int) []string {
	lines := make([]string, len(texts))
	for i, text := range texts {
		lines[i] = line(text[:min(len(text), maxRaw)], most)
	}
	return lines
}

// text is one line without secrets, of a number of bytes at most.
func text(s string, most int) string {
	for _, secret := range secrets {
		s = secret.text.ReplaceAllString(s, secret.stay)
	}
	return line(s, most)
}

// line is one line of a number of bytes at most.
func line(s string, most int) string {
	s = escape.Line(s)
	if len(s) > most {
		const ellipsis = "…"
		s = strings.ToValidUTF8(s[:most-len(ellipsis)], "") + ellipsis
	}
	return s
}

// host is an address without its port: each connection of a caller has another port.
func host(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
