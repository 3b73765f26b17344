package replay

import (
	"bytes"
	"flag"
	"fmt"
	"go/version"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var bubble = flag.Uint64("bubble", 0, "the seed with which TestBubble runs its bubble")

// Equal seeds give equal orders in 9 of 10 processes, which is the aim of replay, and other seeds give other orders. A
// busy machine may disturb a process.
func TestSeedDecidesTheOrder(t *testing.T) {
	t.Parallel()
	program := build(t)
	if program == "" {
		return
	}
	seeds := map[string]map[uint64]int{}
	for _, seed := range []uint64{7, 7, 7, 8, 7, 7, 9, 7, 7, 7, 7, 7} {
		run := exec.CommandContext(t.Context(), program, "-test.run=^TestBubble$", "-test.v", fmt.Sprint("-bubble=", seed))
		run.Env = append(os.Environ(), Environment...)
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, order, found := strings.Cut(string(out), "order ")
		if !found {
			t.Fatalf("a bubble prints no order: %s", out)
		}
		order, _, _ = strings.Cut(order, "\n")
		if seeds[order] == nil {
			seeds[order] = map[uint64]int{}
		}
		seeds[order][seed]++
	}
	most := 0
	for order, of := range seeds {
		most = max(most, of[7])
		if len(of) != 1 {
			t.Errorf("order %s came of several seeds: %v", order, of)
		}
	}
	if most < 9 {
		t.Errorf("%d of 10 processes of a seed have the same order, want 9: seeds by order: %v", most, seeds)
	}
}

// build builds this test with the overlay; empty: Go is of a later release, which is refused.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	overlay, err := Overlay(t.Context(), dir)
	switch {
	case err != nil && newerGo(t):
		t.Logf("Go is newer than go.mod asks for, and no run repeats: %v", err)
		return ""
	case err != nil:
		t.Fatal(err)
	}
	program := filepath.Join(dir, "bubble")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "."}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// newerGo says that the installed Go is of a later release than that of go.mod, to which the changes fit.
func newerGo(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, asked, _ := strings.Cut(string(text), "\ngo ")
	asked, _, _ = strings.Cut(asked, "\n")
	return version.Compare(version.Lang(runtime.Version()), version.Lang("go"+asked)) > 0
}

// TestBubble is what the processes of TestSeedDecidesTheOrder run: goroutines that meet by channels, locks, timers,
// maps and connections, and note who came when.
func TestBubble(t *testing.T) {
	if *bubble == 0 {
		return
	}
	if !SeedBubbles(*bubble) {
		t.Fatal("this program was built without the overlay")
	}
	order := fnv.New64a()
	synctest.Test(t, func(t *testing.T) { meet(t, order.Write) })
	t.Logf("order %x", order.Sum64())
}

func meet(t *testing.T, note func(b []byte) (int, error)) {
	t.Helper()
	var mu sync.Mutex
	came := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = note(fmt.Appendln(nil, words...))
	}
	here, there := net.Pipe()
	go func() {
		read := make([]byte, 8)
		for {
			n, err := there.Read(read)
			if err != nil {
				return
			}
			came("read", bytes.TrimSpace(read[:n]), time.Now())
		}
	}()
	left, right := make(chan int, 1), make(chan int, 1)
	var all sync.WaitGroup
	for i := range 80 {
		all.Go(func() {
			numbers := map[int]bool{i: true, i + 1: true, i + 2: true}
			for range 20 {
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				select {
				case left <- i:
				case right <- i:
				case n := <-left:
					came(i, "left", n)
				case n := <-right:
					came(i, "right", n)
				}
				for n := range numbers {
					came(i, "number", n)
				}
				_, _ = fmt.Fprintf(here, "%d\n", i)
			}
		})
	}
	all.Wait()
	_, _ = here.Close(), there.Close()
}

// Another release of Go is refused when a text that is to be changed is not there.
func TestOtherGoIsRefused(t *testing.T) {
	t.Parallel()
	_, err := changed(func(string) ([]byte, error) { return []byte("package runtime\n"), nil })
	if err == nil || strings.Count(err.Error(), "\n") < len(changes)-1 {
		t.Errorf("a runtime without the texts is changed: %v", err)
	}
}
