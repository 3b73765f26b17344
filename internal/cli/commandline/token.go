package commandline

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/proto/certs"
)

// TokenFlags name the token that is shown to a coordinator. No flag has the token itself: every user of the machine
// sees the arguments of a process.
type TokenFlags struct {
	TokenFile string `help:"A file with the token to show the coordinator in its first line (also: MSGHANDLER_TOKEN_FILE; or the token itself in MSGHANDLER_TOKEN)." placeholder:"FILE" type:"path"`
}

// Token returns the token for a coordinator; empty without a token. The token is for connections with TLS, and for
// coordinators on the loopback.
func (f *TokenFlags) Token(s *Session, server string, secured bool) (string, error) {
	token, err := f.read(s)
	if err != nil || token == "" {
		return "", err
	}
	if !secured && !address.OnLoopback(server) {
		return "", fmt.Errorf("a token is shown over TLS only, and %s is not on the loopback: add --tls, or --tls-ca", server)
	}
	return token, nil
}

// read finds the token. A flag wins over the environment.
func (f *TokenFlags) read(s *Session) (string, error) {
	token, file := s.Variable("MSGHANDLER_TOKEN"), s.Variable("MSGHANDLER_TOKEN_FILE")
	switch {
	case f.TokenFile != "":
		file = f.TokenFile
	case token != "" && file != "":
		return "", errors.New("MSGHANDLER_TOKEN and MSGHANDLER_TOKEN_FILE are both set; unset one of them")
	case token != "":
		if err := certs.CheckToken(token); err != nil {
			return "", fmt.Errorf("MSGHANDLER_TOKEN %w", err)
		}
		return token, nil
	}
	if file == "" {
		return "", nil
	}
	opened, err := certs.OpenTokens(file, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", fmt.Errorf("the token file: %w", err)
	}
	return opened.First(), nil
}
