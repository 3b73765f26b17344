package sql

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer/marker"
)

// identities are the first and the last identity that the store has read of its markers. They differ when another
// database has taken the place of the first.
type identities struct{ first, last atomic.Pointer[string] }

func (i *identities) read(identity string) {
	i.first.CompareAndSwap(nil, &identity)
	i.last.Store(&identity)
}

// Identity implements marker.Store: the identity is the row that Migrate writes into the table TABLE_identity. A copy
// of the database has the identity of the original.
func (s *Store) Identity(ctx context.Context) (identity string, err error) {
	return s.readIdentity(ctx, s.db)
}

func (s *Store) readIdentity(ctx context.Context, in sqldb.Execer) (string, error) {
	found, err := s.ids(ctx, in, `SELECT identity FROM {table}_identity`)
	if err == nil && len(found) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return "", fmt.Errorf("read the identity of the markers; grant SELECT on %s_identity, and if the row or the table "+
			"is missing, run the statements of DDL for it: %w", s.config.Table, err)
	}
	s.identities.read(found[0])
	return found[0], nil
}

// Bound implements marker.Binder.
func (s *Store) Bound(identity string) marker.Store { return s.boundTo(identity) }

func (s *Store) boundTo(identity string) *Store {
	bound := *s
	bound.bound = identity
	return &bound
}

// boundToLast is bound to the identity that the half messages name now: the business, and the look for its outcome,
// belong to the same database. Without an earlier look the identity is read.
func (s *Store) boundToLast(ctx context.Context) (*Store, error) {
	if last := s.identities.last.Load(); last != nil {
		return s.boundTo(*last), nil
	}
	identity, err := s.Identity(ctx)
	return s.boundTo(identity), err
}

// markedIn is the identity that the markers must have where the business runs; empty: any.
func (s *Store) markedIn() string {
	if last := s.identities.last.Load(); s.bound == "" && last != nil {
		return *last
	}
	return s.bound
}

// checkBound fails for the markers of another database than the one that the store is bound to. Within a transaction it
// comes after the write: SQLite lets no transaction write that has read first.
func (s *Store) checkBound(ctx context.Context, in sqldb.Execer) error {
	if s.bound == "" {
		return nil
	}
	found, err := s.readIdentity(ctx, in)
	if err == nil && found != s.bound {
		err = marker.ErrOtherStore
	}
	return err
}
