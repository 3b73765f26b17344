package simulation

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// ttlStep is how often TTLs run down: miniredis does not do so by itself. A key may expire that much too late.
const ttlStep = 5 * time.Second

// refusal is an error in the place of an answer, or empty.
type refusal = func(command string, arguments []string) (text string)

// redisServer is Redis on a host of its own.
type redisServer struct {
	host *Host
	mini *miniredis.Miniredis

	mu sync.Mutex
	// answers may answer a command in the place of the server: nil, or a text for an error.
	answers []refusal
	// scripts are the loaded scripts, by their hashes.
	scripts map[string]string
}

// startRedis serves Redis at a host until the context ends. observe wraps its side of each connection.
func startRedis(ctx context.Context, host *Host, observe func(net.Conn) net.Conn) (*redisServer, error) {
	r := &redisServer{host: host, mini: miniredis.NewMiniRedis(), scripts: map[string]string{}}
	first, err := r.mini.Dial() // starts the server
	if err != nil {
		return nil, err
	}
	_ = first.Close()
	r.mini.Server().SetPreHook(r.hook)
	go func() {
		for sleep(ctx, ttlStep) == nil {
			r.mini.FastForward(ttlStep)
		}
	}()
	return r, host.Serve(redisAddr, func(c net.Conn) { r.mini.Server().ServeConn(observe(c)) })
}

// hook implements server.Hook.
func (r *redisServer) hook(peer *server.Peer, command string, arguments ...string) (done bool) {
	r.mu.Lock()
	answers := r.answers
	r.mu.Unlock()
	if command == "SCRIPT" && len(arguments) == 2 && strings.EqualFold(arguments[0], "load") {
		return r.load(peer, arguments[1])
	}
	for _, answer := range answers {
		if peer.ClientName == "" {
			break // a command of a script, or the world's own: neither is refused
		}
		if refusal := answer(command, arguments); refusal != "" {
			peer.WriteError(refusal)
			return true
		}
	}
	return r.runFlagged(peer, command, arguments)
}

// runFlagged runs a script with flags as one that miniredis knows.
func (r *redisServer) runFlagged(peer *server.Peer, command string, arguments []string) (done bool) {
	switch {
	case command == "EVALSHA" && strings.HasPrefix(r.scriptOf(arguments[0]), shebang):
		arguments[0] = hashOf(plain(r.scriptOf(arguments[0])))
	case command == "EVAL" && strings.HasPrefix(arguments[0], shebang):
		r.mu.Lock()
		r.scripts[hashOf(arguments[0])] = arguments[0]
		r.mu.Unlock()
		arguments[0] = plain(arguments[0])
	default:
		return false
	}
	r.mini.Server().Dispatch(peer, append([]string{command}, arguments...))
	return true
}

// shebang begins a script with flags, which miniredis does not know.
const shebang = "#!"

// plain is a script that miniredis knows: its flags are a comment.
func plain(script string) string { return "--" + script }

// refuse has a function asked about each command; a text that is not empty is the error in the place of the answer.
func (r *redisServer) refuse(answer refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, answer)
}

// load loads a script, unless Redis has it already: miniredis would parse it again, which is slow.
func (r *redisServer) load(peer *server.Peer, script string) (done bool) {
	hash := hashOf(script)
	r.mu.Lock()
	_, loaded := r.scripts[hash]
	r.scripts[hash] = script
	r.mu.Unlock()
	if !loaded && !strings.HasPrefix(script, shebang) {
		return false
	}
	if !loaded {
		if _, err := r.call("SCRIPT", "LOAD", plain(script)); err != nil {
			peer.WriteError(err.Error())
			return true
		}
	}
	peer.WriteBulk(hash)
	return true
}

// scriptOf is the text of a loaded script.
func (r *redisServer) scriptOf(hash string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scripts[hash]
}

func hashOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// forgetScripts implements SCRIPT FLUSH.
func (r *redisServer) forgetScripts() {
	peer := server.NewPeer(bufio.NewWriter(io.Discard))
	r.mini.Server().Dispatch(peer, []string{"SCRIPT", "FLUSH"})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts = map[string]string{}
}

// refuseWhile has commands refused, for some seconds again and again.
func (r *redisServer) refuseWhile(ctx context.Context, w *World, d draws, answer refusal) {
	var on atomic.Bool
	r.refuse(func(command string, arguments []string) string {
		if on.Load() {
			return answer(command, arguments)
		}
		return ""
	})
	w.repeat(ctx, d, func() {
		w.Ledger.Fault("Redis: " + d.of)
		w.note("Redis: %s", d.of)
		on.Store(true)
		_ = sleep(ctx, d.within("length", 100*time.Millisecond, 20*time.Second))
		on.Store(false)
	})
}

// sleep waits, or returns the error of the ended context.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
