// Package changelog reads and writes the sections of CHANGELOG.md.
package changelog

import (
	"fmt"
	"strings"
	"time"
)

// Unreleased is the heading of what no release has yet.
const Unreleased = "## [Unreleased]"

// Section returns what a changelog says of a version, without the heading.
func Section(text, version string) (string, error) {
	_, after, found := strings.Cut(text, "\n"+heading(version))
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q. To make one of what is unreleased: make version VERSION=%s",
			heading(version), version)
	}
	_, body, _ := strings.Cut(after, "\n")
	body, _, _ = strings.Cut(body, "\n## [")
	if body = strings.TrimSpace(body); body == "" {
		return "", fmt.Errorf("the section %q of CHANGELOG.md is empty", heading(version))
	}
	return body + "\n", nil
}

// Release gives what is unreleased to a version, and leaves an empty section for the time after. A changelog that has
// the version stays as it is.
func Release(text, version string, at time.Time) (string, error) {
	if strings.Contains(text, "\n"+heading(version)) {
		return text, nil
	}
	before, after, found := strings.Cut(text, "\n"+Unreleased+"\n")
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no section %q", Unreleased)
	}
	return before + "\n" + Unreleased + "\n\n" + heading(version) + " - " + at.Format(time.DateOnly) + "\n" + after, nil
}

// heading is the heading of a version without its date.
func heading(version string) string { return "## [" + strings.TrimPrefix(version, "v") + "]" }
