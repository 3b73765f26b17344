// Package replay makes runs of test/simulation repeatable: a seed gives the same order of everything in a bubble.
//
// A bubble of testing/synctest has its own clock, but Go chooses by chance which goroutine runs next, which case of a
// select is taken, and where the iteration of a map begins. No setting of Go fixes these choices. Overlay changes a
// few lines of the installed Go, for one build by go build -overlay: these choices come from a seed of the bubble.
package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Environment makes a program that was built with the overlay repeatable: one processor, no garbage collection, which
// would run beside the bubble, and no samples of memory, which use up random numbers.
var Environment = []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,memprofilerate=0"}

// change replaces a text of Go that is there exactly once. The changes stand here instead of the changed
// files: no file of Go is in this repository, and another release of Go is changed too, or refused.
type change struct{ file, old, new string }

var changes = []change{
	// A bubble has a random state of its own, which begins with a number that the test has set.
	{"runtime/synctest.go", "\tactive  int // other sources of activity\n}", `	active  int // other sources of activity
	random  uint64
}

//go:linkname bubbleSeed
var bubbleSeed uint64 = 1

//go:nosplit
func (bubble *synctestBubble) rand() uint64 {
	bubble.random += 0x9e3779b97f4a7c15
	z := bubble.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}`},
	{"runtime/synctest.go", "\t\troot:    gp,\n", "\t\troot:    gp,\n\t\trandom:  bubbleSeed,\n"},
	// Maps, math/rand and the scheduler choose by that state wherever a goroutine of a bubble runs.
	{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	mp := getg().m
	if gp := mp.curg; gp != nil && gp.bubble != nil {
		return gp.bubble.rand()
	}
	c := &mp.chacha8
`},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(rand())"},
	// The hash of maps, and where the heap begins, are the same in each process.
	{"runtime/rand.go", "\tseed := &globalRand.seed\n", "\tstartupRand = nil\n\tseed := &globalRand.seed\n"},
	{
		"runtime/rand.go", "if readRandom(seed[:]) != len(seed) || allZero(seed[:]) {",
		"seed[0] = 1\n\t\tif allZero(seed[:]) {",
	},
	// A goroutine that becomes ready runs next in every second case only, as under the race detector. What runs outside of
	// the bubble never does, and the clock of the machine ends no turn.
	{
		"runtime/proc.go", "if randomizeScheduler && next && randn(2) == 0 {",
		"if next && (gp.bubble == nil || gp.bubble.rand()&1 == 0) {",
	},
	{"runtime/proc.go", "func retake(now int64) uint32 {\n", "func retake(now int64) uint32 {\n\treturn 0\n"},
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false {"},
	{
		"runtime/sema.go", "func internal_sync_nanotime() int64 {\n",
		"func internal_sync_nanotime() int64 {\n\tif b := getg().bubble; b != nil {\n\t\treturn b.now\n\t}\n",
	},
	// Machine and process are parts of names.
	{"os/sys.go", "\treturn hostname()\n", "\treturn \"simulation\", nil\n"},
	{"os/exec.go", "func Getpid() int { return syscall.Getpid() }", "func Getpid() int { return 4242 }"},
}

// Overlay writes the changed files of the installed Go into a directory, and returns the file for go build -overlay. An
// installed Go that looks otherwise is an error: its bubbles would not repeat.
func Overlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("ask go for GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src")
	files, err := changed(func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(source, file)) })
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for file, text := range files {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replaced[filepath.Join(source, file)] = path
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// changed is the text of each changed file.
func changed(read func(file string) ([]byte, error)) (map[string][]byte, error) {
	files := map[string][]byte{}
	var wrong error
	for _, c := range changes {
		text, known := files[c.file]
		if !known {
			var err error
			if text, err = read(c.file); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(text, []byte(c.old)); n != 1 {
			wrong = errors.Join(wrong, fmt.Errorf("%s holds the text %q %d times, not once", c.file, c.old, n))
		}
		files[c.file] = bytes.Replace(text, []byte(c.old), []byte(c.new), 1)
	}
	if wrong != nil {
		return nil, fmt.Errorf("this release of Go cannot be changed; fit replay's changes to it: %w", wrong)
	}
	return files, nil
}
