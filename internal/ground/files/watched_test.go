package files_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/files"
)

// Each disappearance of a file is reported once, also where the file comes back unchanged in between.
func TestEachDisappearanceIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone error
		var reported []string
		w, err := files.Watch(files.Source[string, string]{
			Read:     func() (string, error) { return "content", gone },
			Make:     func(content string) (string, error) { return content, nil },
			Reloaded: func() { t.Error("an unchanged file was reloaded") },
			Failed:   func(err error) { reported = append(reported, err.Error()) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, gone = range []error{errors.New("gone"), errors.New("gone"), nil, errors.New("gone")} {
			time.Sleep(2 * time.Second) // of the bubble's clock
			if got := w.Current(); got != "content" {
				t.Errorf("the value is %q", got)
			}
		}
		if want := []string{"gone", "gone"}; !slices.Equal(reported, want) {
			t.Errorf("reported %q, want %q", reported, want)
		}
	})
}
