package files_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/files"
)

func TestExposedTellsWhatOthersMay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets")
	if got := files.Exposed(path); got != "" {
		t.Errorf("a missing file lets others %q", got)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[fs.FileMode]string{
		0o600: "", 0o660: "", 0o640: "", 0o400: "", 0o644: "read", 0o602: "write", 0o666: "read and write", 0o601: "",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := files.Exposed(path); got != want {
			t.Errorf("mode %#o lets others %q, want %q", mode, got, want)
		}
	}
}
