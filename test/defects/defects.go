// Package defects has known mistakes of earlier systems of this kind and of this system. A test builds a program with a
// mistake, and must find the mistake.
package defects

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Defect is a known mistake, as changes of source files.
type Defect struct {
	Name  string
	Edits []Edit
}

// Edit is one change of a source file, named from the top of the repository. The old text is there exactly once.
type Edit struct{ File, Old, New string }

// All are the defects.
var All = slices.Concat(ofCoordinators, ofStreams, ofHistory)

// Named is the defect of a name.
func Named(name string) (Defect, error) {
	at := slices.IndexFunc(All, func(d Defect) bool { return d.Name == name })
	if at < 0 {
		var names []string
		for _, d := range All {
			names = append(names, d.Name)
		}
		return Defect{}, fmt.Errorf("there is no defect %q; there are %s", name, strings.Join(names, ", "))
	}
	return All[at], nil
}

// Overlay writes the changed files into a directory, and returns the file for go build -overlay. The sources at the top
// of the repository stay as they are.
func (d Defect) Overlay(top, dir string) (list string, err error) {
	replaced, err := d.Write(top, dir)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// Write writes the changed files into a directory, and returns their paths by the paths of the sources.
func (d Defect) Write(top, dir string) (map[string]string, error) {
	top, err := filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	replaced := map[string]string{}
	for i, e := range d.Edits {
		source, path := filepath.Join(top, e.File), filepath.Join(dir, strings.ReplaceAll(e.File, "/", "_"))
		if replaced[source] != "" {
			return nil, fmt.Errorf("edit %d of %s changes %s a second time", i, d.Name, e.File)
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(text), e.Old); n != 1 {
			return nil, fmt.Errorf("%s: %s holds the text %q %d times, not once: fit the defect to the present code",
				d.Name, e.File, e.Old, n)
		}
		changed := strings.Replace(string(text), e.Old, e.New, 1)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			return nil, err
		}
		replaced[source] = path
	}
	return replaced, nil
}
