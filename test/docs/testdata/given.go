// Package given declares the names that the pages' blocks of Go use and do not show. A name means the same on each
// page.
package given

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"log/slog"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// What a program has at hand.
var (
	ctx         context.Context
	db          *sql.DB
	tx          *sql.Tx
	err         error
	logger      *slog.Logger
	mux         *http.ServeMux
	url         string // of a broker
	now         time.Time
	authorities *x509.CertPool
	own         []tls.Certificate
)

// What the SDKs have made in an earlier block.
var (
	p       *producer.Producer
	c       *rabbitmqconsumer.Consumer
	markers *sqlmarker.Store
	inbox   *sqlinbox.Inbox
	sender  outbox.Sender
	message producer.Message
	m       *consumer.Message
	body    []byte
)

// Order is a row of the user's business.
type Order struct {
	ID     string
	Amount int
}

// Paid is the content of an event.
type Paid struct {
	OrderNo string
	Amount  int
}

var (
	order   Order
	attempt int
	paid    Paid
)

// The user's own code.
var (
	pay      func(args ...any) error
	take     func(args ...any) error
	business func(context.Context) error
	effect   func(context.Context, *sql.Tx, *consumer.Message) error
	mailer   consumer.Handler
)
