package versions_test

import (
	"os"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/versions"
)

func TestParseReadsLeadingNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]versions.Version{
		"4.3.6": {4, 3, 6}, "3.13.0-rc.1": {3, 13, 0}, "9": {9, 0, 0}, "8.0": {8, 0, 0}, "7.0.15~beta": {7, 0, 15},
		"255.255.255": {255, 255, 255},
		"4.x":         {4, 0, 0}, "4.3.6.1": {4, 3, 6},
	} {
		if got, ok := versions.Parse(text); got != want || !ok {
			t.Errorf("Parse(%q) = %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "unstable", "v4.3", ".4"} {
		if got, ok := versions.Parse(text); ok {
			t.Errorf("Parse(%q) = %v", text, got)
		}
	}
}

func TestOnlyVersionsOfRangeAreSupported(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"3.9.29": "too old", "3.10.0": "supported", "3.13.7": "supported", "4.3.99": "supported", "4.4.0": "untested",
		"5.0.1": "untested",
	} {
		v, _ := versions.Parse(text)
		got := "supported"
		switch {
		case versions.RabbitMQ.TooOld(v):
			got = "too old"
		case versions.RabbitMQ.Untested(v):
			got = "untested"
		}
		if got != want {
			t.Errorf("RabbitMQ %s is %s, want %s", text, got, want)
		}
	}
}

func TestServersPageNamesTheSupportedVersions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/run/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []versions.Server{versions.RabbitMQ, versions.Redis, versions.Valkey} {
		row := "| " + s.Name + " | " + s.Oldest.String() + " | " + s.Newest.String() + " |"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/run/upgrade.md has no row %q", row)
		}
	}
}
