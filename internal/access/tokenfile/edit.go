package tokenfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoToken says that the file has no token of a name.
var ErrNoToken = errors.New("there is no token of this name; see msghandler token list")

// Read returns the tokens of a file, in the order of the file.
func Read(path string) ([]Token, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		return nil, err
	}
	tokens, err := Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tokens, nil
}

// Add appends a token to a file, and makes the file where there is none. Comments and other lines stay. Concurrent
// changes wait for each other. A reader sees the file before or after the change.
func Add(path string, t Token) error {
	return edit(path, func(content string, tokens []Token) (string, error) {
		if holds(tokens, t.Name) {
			return "", fmt.Errorf("%s has a token %s; choose another name, or revoke that token", path, t.Name)
		}
		if content != "" && !strings.HasSuffix(content, "\n") {
			content += "\n"
		}
		return content + t.String() + "\n", nil
	})
}

// Remove removes the token of a name from a file. The error is ErrNoToken where there is none.
func Remove(path, name string) error {
	if _, err := os.Stat(path); err != nil {
		return err // edit would make the file
	}
	return edit(path, func(content string, tokens []Token) (string, error) {
		if !holds(tokens, name) {
			return "", fmt.Errorf("%s: %w", path, ErrNoToken)
		}
		var kept strings.Builder
		for line := range strings.Lines(content) {
			if fields := strings.Fields(line); len(fields) == 0 || fields[0] != name {
				kept.WriteString(line)
			}
		}
		return kept.String(), nil
	})
}

func holds(tokens []Token, name string) bool {
	return slices.ContainsFunc(tokens, func(t Token) bool { return t.Name == name })
}

// edit replaces the content of a file, under a lock of the file.
func edit(path string, change func(content string, tokens []Token) (string, error)) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	locked, err := openLocked(path)
	if err != nil {
		return err
	}
	defer locked.Close()              // gives the lock back
	content, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		return err
	}
	tokens, err := Parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	changed, err := change(string(content), tokens)
	if err != nil {
		return err
	}
	return replace(path, locked, changed)
}

// openLocked opens a file and locks it. A file that another process has replaced meanwhile is opened anew: the lock is
// on the file that the path names.
func openLocked(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the operator's own
		if err != nil {
			return nil, err
		}
		current, err := lockCurrent(file, path)
		if current {
			return file, nil
		}
		_ = file.Close()
		if err != nil {
			return nil, err
		}
	}
}

// lockCurrent locks an opened file, and says whether the path still names this file.
func lockCurrent(file *os.File, path string) (bool, error) {
	if err := lock(file); err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	opened, err := file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// replace puts a file with new content in the place of an old file, with the mode and the owner of the old file.
func replace(path string, old *os.File, content string) (err error) {
	info, err := old.Stat()
	if err != nil {
		return err
	}
	made, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(made.Name())
		}
	}()
	defer made.Close()
	if _, err = made.WriteString(content); err != nil {
		return err
	}
	if err = keepOwner(made, info); err != nil {
		return fmt.Errorf("keep the owner of %s: %w; run the command as the owner of the file", path, err)
	}
	if err = errors.Join(made.Chmod(info.Mode().Perm()), made.Sync(), made.Close()); err != nil {
		return err
	}
	if err = os.Rename(made.Name(), path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}
