package certs

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/files"
)

// A token shorter than minToken bytes may be guessed. A token longer than maxToken bytes does not fit into the metadata
// that gRPC servers accept.
const (
	minToken = 16
	maxToken = 4096
)

// CheckToken refuses an invalid bearer token: shorter than 16 or longer than 4,096 bytes, or with characters other than
// printable ASCII without spaces. The error is a phrase that follows the token's name, and never quotes the token.
func CheckToken(token string) error {
	switch {
	case len(token) < minToken:
		return fmt.Errorf("has fewer than %d characters; make one with: openssl rand -hex 32", minToken)
	case len(token) > maxToken:
		return fmt.Errorf("has more than %d characters", maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("holds what cannot stand in a header; it takes printable ASCII without spaces")
	}
	return nil
}

// TokenSet holds accepted tokens, as their hashes. The zero value accepts none.
type TokenSet struct{ sums [][sha256.Size]byte }

// NewTokenSet fails when a token is invalid. The error names the token by its number and never quotes the token.
func NewTokenSet(tokens []string) (TokenSet, error) {
	var set TokenSet
	for i, token := range tokens {
		if err := CheckToken(token); err != nil {
			return TokenSet{}, fmt.Errorf("token %d %w", i+1, err)
		}
		set.sums = append(set.sums, sha256.Sum256([]byte(token)))
	}
	return set, nil
}

// Accepts reports whether a token is in the set, in a time that reveals nothing about the accepted tokens.
func (s TokenSet) Accepts(token string) bool {
	sum := sha256.Sum256([]byte(token))
	accepted := 0
	for i := range s.sums {
		accepted |= subtle.ConstantTimeCompare(sum[:], s.sums[i][:])
	}
	return accepted == 1
}

// TokenFile is a file with a bearer token on each line; empty lines and lines that begin with # do not count. A client
// shows the first token, a server accepts all tokens, so that both may read the same file. The file is read again when
// it changes. A TokenFile is safe for concurrent use.
type TokenFile struct {
	tokens *files.Watched[string, tokens]
}

type tokens struct {
	first    string
	accepted TokenSet
}

// OpenTokens reads a file of tokens. OpenTokens fails when the file cannot be read, holds no token, or holds an invalid
// token; the error names the file and never quotes a token. Reloads are logged.
func OpenTokens(file string, logger *slog.Logger) (*TokenFile, error) {
	watched, err := files.Watch(files.Source[string, tokens]{
		Read: func() (string, error) {
			content, err := os.ReadFile(file) //nolint:gosec // the path is the operator's own
			return string(content), err
		},
		Make: func(content string) (tokens, error) {
			read, err := parseTokens(content)
			if err != nil {
				return tokens{}, fmt.Errorf("%s: %w", file, err)
			}
			return read, nil
		},
		Reloaded: func() { logger.Info("tokens reloaded", "path", file) },
		Failed: func(err error) {
			logger.Warn("changed token file is unusable; the tokens read before stay in use; correct the file", "cause", err)
		},
	})
	if err != nil {
		return nil, err
	}
	return &TokenFile{watched}, nil
}

// First is the token to show.
func (t *TokenFile) First() string { return t.tokens.Current().first }

// Accepts says whether a token stands in the file.
func (t *TokenFile) Accepts(token string) bool { return t.tokens.Current().accepted.Accepts(token) }

var errNoToken = errors.New("holds no token; write one a line")

func parseTokens(content string) (tokens, error) {
	var all []string
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return tokens{}, errNoToken
	}
	accepted, err := NewTokenSet(all)
	if err != nil {
		return tokens{}, err
	}
	return tokens{first: all[0], accepted: accepted}, nil
}
