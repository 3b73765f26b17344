// Package tokenfile authenticates callers by bearer tokens whose hashes stand in a file. Tokens are made, listed and
// revoked in the file, without a server.
package tokenfile

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/files"
)

// File is a file of tokens. The file is read again when it changes. A File is safe for concurrent use.
type File struct {
	tokens *files.Watched[string, index]
	reader *reader
}

var _ access.Source = (*File)(nil)

// Open reads a file of tokens. Open fails when the file cannot be read or has an invalid line; the error names the file
// and the line, and never quotes the line. Reloads are logged, with the names of the tokens that have changed.
func Open(path string, logger *slog.Logger) (*File, error) {
	r := &reader{path: path, logger: logger}
	watched, err := files.Watch(files.Source[string, index]{
		Read: r.read, Make: r.make, Reloaded: r.reloaded,
		Failed: func(err error) {
			logger.Warn("changed token file is unusable; the tokens read before stay valid; correct the file", "cause", err)
		},
	})
	if err != nil {
		return nil, err
	}
	r.used = r.made
	r.warnExposed()
	return &File{watched, r}, nil
}

// OnReload has tell called with the names of the tokens that each reload of the file adds and removes; a changed token
// is in both. Call OnReload before the first Authenticate. The file is read when a token is shown.
func (f *File) OnReload(tell func(added, removed []string)) { f.reader.tell = tell }

// reader reads a file, and logs how the file changes.
type reader struct {
	path   string
	logger *slog.Logger
	// made are the tokens of the last valid content, used those that were logged.
	made, used []Token
	// tell gets the names of a reload; may be nil.
	tell func(added, removed []string)
}

func (r *reader) read() (string, error) {
	content, err := os.ReadFile(r.path)
	return string(content), err
}

func (r *reader) make(content string) (index, error) {
	tokens, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	r.made = tokens
	return newIndex(tokens), nil
}

func (r *reader) reloaded() {
	added, removed := namesWithout(r.made, r.used), namesWithout(r.used, r.made)
	r.logger.Info("token file reloaded", "path", r.path, "added", added, "removed", removed)
	if r.tell != nil {
		r.tell(added, removed)
	}
	r.used = r.made
	r.warnExposed()
}

// namesWithout are the names of tokens whose lines are not among those of the others. A changed token has both lines.
func namesWithout(tokens, others []Token) []string {
	lines := map[string]bool{}
	for _, t := range others {
		lines[t.String()] = true
	}
	names := []string{}
	for _, t := range tokens {
		if !lines[t.String()] {
			names = append(names, t.Name)
		}
	}
	return names
}

// warnExposed warns of a file that other users may read, or in which they may write a token of their own.
func (r *reader) warnExposed() {
	if may := files.Exposed(r.path); may != "" {
		r.logger.Warn("every user of this machine may "+may+" the token file; set its mode to 0600", "path", r.path)
	}
}

var (
	errUnknown = errors.New("the token is unknown: it was revoked, or is of another coordinator")
	errDamaged = errors.New("the token is damaged: its checksum is wrong; copy the token whole")
)

// Authenticate implements access.Source. A text that is not of the tokens' form belongs to another source.
func (f *File) Authenticate(_ context.Context, token string) (access.Identity, error) {
	switch formOf(token) {
	case otherForm:
		return access.Identity{}, access.ErrNotMine
	case damaged:
		return access.Identity{}, errDamaged
	}
	return f.AuthenticateSum(sha256.Sum256([]byte(token)))
}

// AuthenticateSum is Authenticate for the hash of a token that its owner has shown before.
func (f *File) AuthenticateSum(sum [sha256.Size]byte) (access.Identity, error) {
	found, known := f.tokens.Current().find(sum)
	switch {
	case !known:
		return access.Identity{}, errUnknown
	case found.Expired(time.Now()):
		return access.Identity{}, fmt.Errorf("the token %s expired at %s; make a new token",
			found.Name, found.Expires.Format(time.RFC3339))
	}
	return found.identity(), nil
}

func (t Token) identity() access.Identity {
	name := "token:" + t.Name
	return access.Identity{
		Kind: access.Token, Name: name, Names: []string{name},
		Role: t.Role, Producers: t.Producers, Expires: t.Expires,
	}
}

// index holds tokens by the first bytes of their hashes. The time of a lookup depends on the presented token's hash
// only. Nobody can choose a token by the first bytes of a stored hash, so the time helps no guess; the whole hashes are
// compared in constant time.
type index map[prefix][]Token

type prefix [8]byte

func newIndex(tokens []Token) index {
	made := index{}
	for _, t := range tokens {
		key := prefix(t.Sum[:])
		made[key] = append(made[key], t)
	}
	return made
}

func (i index) find(sum [sha256.Size]byte) (Token, bool) {
	for _, t := range i[prefix(sum[:])] {
		if subtle.ConstantTimeCompare(t.Sum[:], sum[:]) == 1 {
			return t, true
		}
	}
	return Token{}, false
}
