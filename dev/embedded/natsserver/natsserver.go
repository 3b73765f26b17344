// Package natsserver runs a NATS server with JetStream inside this process, for trying things out. Nothing is durable:
// the streams are gone when the server is closed. The server has no password, so it listens on loopback only.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout is how long the server may take to accept connections.
const startTimeout = 10 * time.Second

// Server is a running server.
type Server struct {
	server *server.Server
	dir    string
}

// Start starts a server at a loopback address such as 127.0.0.1:4222. Its streams are files in a temporary directory.
// The caller must call Close.
func Start(addr string, logger *slog.Logger) (*Server, error) {
	host, port, err := loopback(addr)
	if err != nil {
		return nil, fmt.Errorf("start the embedded NATS server at %q: %w", addr, err)
	}
	dir, err := os.MkdirTemp("", "msghandler-nats-")
	if err != nil {
		return nil, fmt.Errorf("start the embedded NATS server: %w", err)
	}
	s := &Server{dir: dir}
	s.server, err = server.NewServer(&server.Options{
		ServerName: "msghandler-dev", Host: host, Port: port, JetStream: true, StoreDir: dir, NoSigs: true,
	})
	if err == nil {
		s.server.SetLoggerV2(log{logger}, false, false, false)
		s.server.Start()
		if !s.server.ReadyForConnections(startTimeout) {
			err = fmt.Errorf("not ready within %v", startTimeout)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the embedded NATS server: %w", err), s.Close())
	}
	return s, nil
}

func loopback(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return "", 0, errors.New("only loopback addresses are allowed")
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// URL is nats://HOST:PORT.
func (s *Server) URL() string { return s.server.ClientURL() }

// Close stops the server and removes its streams.
func (s *Server) Close() error {
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	return os.RemoveAll(s.dir)
}

// log is a logger of the library on ours. What the server notices of its start is of no interest.
type log struct{ to *slog.Logger }

func (l log) say(level slog.Level, format string, args ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, args...))
	l.to.Log(context.Background(), level, "the embedded NATS server says", slog.String("text", text))
}

func (l log) Noticef(format string, args ...any) { l.say(slog.LevelDebug, format, args...) }
func (l log) Warnf(format string, args ...any)   { l.say(slog.LevelWarn, format, args...) }
func (l log) Errorf(format string, args ...any)  { l.say(slog.LevelError, format, args...) }
func (l log) Fatalf(format string, args ...any)  { l.say(slog.LevelError, format, args...) }
func (l log) Debugf(format string, args ...any)  { l.say(slog.LevelDebug, format, args...) }
func (l log) Tracef(format string, args ...any)  { l.say(slog.LevelDebug, format, args...) }
