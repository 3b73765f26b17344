package simulation

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// refusal is an error in the place of an answer, or empty.
type refusal = func(command string, arguments []string) (text string)

// redisServer is Redis on a host of its own.
type redisServer struct {
	host *Host
	mini *miniredis.Miniredis

	mu sync.Mutex
	// answers may answer a command in the place of the server: nil, or a text for an error.
	answers []refusal
	// scripts are the loaded scripts, by their hashes, and lua runs them.
	scripts map[string]string
	lua     *redisScripts
}

// startRedis serves Redis at a host until the context ends. TTLs run down in steps. observe wraps its side of each
// connection.
func startRedis(
	ctx context.Context, host *Host, step time.Duration, observe func(net.Conn) net.Conn,
) (*redisServer, error) {
	r := &redisServer{host: host, mini: miniredis.NewMiniRedis(), scripts: map[string]string{}}
	first, err := r.mini.Dial() // starts the server
	if err != nil {
		return nil, err
	}
	_ = first.Close()
	if r.lua, err = openScripts(r); err != nil {
		return nil, err
	}
	r.mini.Server().SetPreHook(r.hook)
	go func() {
		for sleep(ctx, step) == nil {
			r.mini.FastForward(step)
		}
	}()
	return r, host.Serve(redisAddr, func(c net.Conn) { r.mini.Server().ServeConn(observe(c)) })
}

// hook implements server.Hook.
func (r *redisServer) hook(peer *server.Peer, command string, arguments ...string) (done bool) {
	if peer == r.lua.commands {
		return false // a command of a script is not refused
	}
	r.mu.Lock()
	answers := r.answers
	r.mu.Unlock()
	for _, answer := range answers {
		if peer.ClientName == "" {
			break // the world's own command
		}
		if refusal := answer(command, arguments); refusal != "" {
			peer.WriteError(refusal)
			return true
		}
	}
	return r.script(peer, command, arguments)
}

// script runs the commands about scripts.
func (r *redisServer) script(peer *server.Peer, command string, arguments []string) (done bool) {
	var hash string
	switch {
	case command == "SCRIPT" && len(arguments) == 2 && strings.EqualFold(arguments[0], "load"):
		if hash = r.load(peer, arguments[1]); hash != "" {
			peer.WriteBulk(hash)
		}
		return true
	case command == "EVAL" && len(arguments) > 1:
		hash = r.load(peer, arguments[0])
	case command == "EVALSHA" && len(arguments) > 1:
		if hash = arguments[0]; r.scriptOf(hash) == "" {
			peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
			return true
		}
	default:
		return false
	}
	if hash != "" {
		r.lua.run(peer, hash, arguments[1:])
	}
	return true
}

// shebang begins a script with flags.
const shebang = "#!"

// refuse has a function asked about each command; a text that is not empty is the error in the place of the answer.
func (r *redisServer) refuse(answer refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, answer)
}

// load loads a script and returns its hash, or answers with an error.
func (r *redisServer) load(peer *server.Peer, script string) (hash string) {
	hash = hashOf(script)
	if err := r.lua.load(hash, script); err != nil {
		peer.WriteError(err.Error())
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[hash] = script
	return hash
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
		_ = sleep(ctx, d.long("length", 100*time.Millisecond, 20*time.Second))
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
