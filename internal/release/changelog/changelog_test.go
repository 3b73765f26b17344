package changelog

import (
	"strings"
	"testing"
	"time"
)

const text = `# Changelog

## [Unreleased]

### Added

- A thing.

## [0.1.0] - 2026-01-02

### Fixed

- Another.
`

func TestSectionOfAVersion(t *testing.T) {
	t.Parallel()
	got, err := Section(text, "v0.1.0")
	if want := "### Fixed\n\n- Another.\n"; err != nil || got != want {
		t.Errorf("the section is %q (%v), want %q", got, err, want)
	}
	_, err = Section(text, "v0.2.0")
	if err == nil || !strings.Contains(err.Error(), "make version VERSION=v0.2.0") {
		t.Errorf("a version without a section: %v", err)
	}
}

func TestReleaseNamesWhatIsUnreleased(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	released, err := Release(text, "v0.2.0", at)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(text, Unreleased, Unreleased+"\n\n## [0.2.0] - 2026-03-04", 1); released != want {
		t.Errorf("the changelog is\n%s\nwant\n%s", released, want)
	}
	if again, err := Release(released, "v0.2.0", at.AddDate(0, 0, 1)); err != nil || again != released {
		t.Errorf("a second time changes it (%v):\n%s", err, again)
	}
	if _, err := Section(released, "v0.3.0"); err == nil {
		t.Error("a version that does not exist has a section")
	}
	if _, err := Section(strings.Replace(text, "### Added\n\n- A thing.\n\n", "", 1), "v0.1.0"); err != nil {
		t.Error(err)
	}
}
