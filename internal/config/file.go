package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/escape"
)

// readFile takes the values of a YAML file. Keys may be nested or written with dots.
func (l *loading) readFile(path string) error {
	content, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		return fmt.Errorf("configuration: cannot read the file: %w", err)
	}
	if line := deceptiveLine(content); line > 0 {
		return fmt.Errorf("configuration: %s:%d holds a character that is invisible or changes the direction of writing, "+
			"so a reader may see other keys and values; remove it", path, line)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return notYAML(path, content, err)
	}
	f := &file{loading: l, path: path}
	f.readNode("", document.Content[0])
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		f.wrong(&second, "---", "begins a second document; a configuration is one")
	} else if !errors.Is(err, io.EOF) {
		return notYAML(path, content, err)
	}
	return nil
}

// deceptiveLine is the number of the first line that a reader may see as another one; 0: there is none. A byte order
// mark may begin the file, and the YAML library refuses control characters of ASCII.
func deceptiveLine(content []byte) int {
	text := strings.TrimPrefix(string(content), "\ufeff")
	for i, line := range strings.Split(text, "\n") {
		if isDeceptive(line) {
			return i + 1
		}
	}
	return 0
}

// isDeceptive says whether a reader may see a text as another one. The control characters of ASCII are for others to
// judge.
func isDeceptive(text string) bool {
	return escape.Deceptive(strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return -1
		}
		return r
	}, text))
}

// notYAML adds the line to an error of the YAML library. The library names no line for errors in line 1, for bytes that
// are no text, and for unknown aliases. The line is found by search: the shortest beginning of the file with the same
// error.
func notYAML(path string, content []byte, err error) error {
	if strings.HasPrefix(err.Error(), "yaml: line ") {
		return fmt.Errorf("configuration: %s is not YAML: %w", path, err)
	}
	lines := bytes.SplitAfter(content, []byte{'\n'})
	above := sort.Search(len(lines)-1, func(n int) bool {
		decoder := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n+1], nil)))
		for {
			var document yaml.Node
			if found := decoder.Decode(&document); found != nil {
				return found.Error() == err.Error()
			}
		}
	})
	return fmt.Errorf("configuration: %s:%d is not YAML: %w", path, above+1, err)
}

// file is a YAML file being read.
type file struct {
	loading *loading
	path    string
}

func (f *file) origin(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.path, n.Line) }

func (f *file) wrong(n *yaml.Node, key, what string) {
	f.loading.problem(given{origin: f.origin(n), written: key}, "", what)
}

// readNode takes the values at and below a node whose key is name.
func (f *file) readNode(name string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		if n.Alias.Kind == yaml.MappingNode {
			// Recursive keys would never end, and a few lines of nested aliases expand to billions of keys.
			f.wrong(n, name, "is an alias of keys; an alias may stand for a value or a list, write the keys out")
			return
		}
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		f.mapping(name, n)
	case yaml.ScalarNode:
		f.leaf(name, n, []*yaml.Node{n})
	case yaml.SequenceNode:
		f.leaf(name, n, n.Content)
	default:
		f.wrong(n, name, "is neither a value nor a list nor keys")
	}
}

func (f *file) mapping(name string, n *yaml.Node) {
	if _, isKey := findPlain(name); isKey {
		f.wrong(n, name, "takes a value, not further keys")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		full := strings.TrimPrefix(name+"."+key.Value, ".")
		if line, twice := seen[key.Value]; twice {
			f.wrong(key, full, fmt.Sprintf("stands twice, first in line %d; remove one", line))
			continue
		}
		seen[key.Value] = key.Line
		if isSection(full) && emptyNode(v) {
			continue
		}
		if !leads(full) {
			f.wrong(key, full, "is not a known key"+hint(full))
			continue
		}
		f.readNode(full, v)
	}
}

// leads says whether a name is a key or leads to one.
func leads(name string) bool {
	section, rest, _ := strings.Cut(name, ".")
	_, isKey := Find(name)
	return isKey || isSection(name) || named[section] != nil && rest != ""
}

func (f *file) leaf(name string, n *yaml.Node, values []*yaml.Node) {
	if name == "" || isSection(name) {
		f.wrong(n, strings.TrimSpace(name+" "), "holds a value where keys are wanted; write key: value lines")
		return
	}
	g := given{origin: f.origin(n), written: name, file: f.path}
	for _, v := range values {
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v.Kind != yaml.ScalarNode {
			f.wrong(v, name, "holds a list or a mapping inside a list; write plain values")
			return
		}
		if v.Tag == "!!null" {
			f.wrong(v, name, "has no value; give one, or remove the line for the default")
			return
		}
		g.values = append(g.values, v.Value)
	}
	if earlier, twice := f.loading.given[name]; twice {
		f.wrong(n, name, "stands twice, first at "+earlier.origin+"; remove one")
		return
	}
	f.loading.offer(name, g)
}

func emptyNode(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
