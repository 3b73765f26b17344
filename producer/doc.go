// Package producer lets a service tell others about its local transactions, through a message broker, without losing a
// message and without telling lies.
//
// The service hands the coordinator a half message before its transaction; no consumer sees it. Then it runs the
// transaction. The message is published only once the transaction is known to have committed, and then it is published
// for certain.
//
//	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
//	err = markers.Migrate(ctx)                    // a table beside those of the service
//	p, err := producer.New(producer.Config{
//		Name:        "orders",                    // this service's name
//		Coordinator: "127.0.0.1:9090",            // where msghandler listens
//		Markers:     markers,                     // notes of what committed, in the service's own transactions
//	})
//	err = markers.Send(ctx, p, producer.Message{
//		ID: "1001", Exchange: "orders", RoutingKey: "order.paid", Body: body,
//	}, func(ctx context.Context, tx *sql.Tx) error {
//		return pay(ctx, tx, order)                // the business: everything through tx
//	})
//
// The SQL markers (package marker/sql) are for a service with a database of PostgreSQL, MySQL, MariaDB or SQLite. A
// service without one takes markers in Redis or in memory, which promise less: see below.
//
// # What Send does
//
// Send stores the half message and tries again until it has an OK; without one the business never runs. It begins a
// transaction whose first row is a marker, runs the business in the transaction, and commits. It submits in the
// background, and returns. If the Submit is lost, or the process dies, the coordinator asks, and the answer comes from
// the markers. When the coordinator has stored the answer it has the marker dropped.
//
// The business returns nil, and its transaction is committed; or it returns an error, and nothing is: the message is
// rolled back, and its id used up. Package marker/sql finds errors of the database that pass, such as a deadlock, and
// wraps [ErrSendAgain]: nothing is committed, and the id stays usable. A business that gives its message up
// nevertheless returns [Permanent] of the error.
//
// When Send returns nil, the business has committed and the message is on its way. When it returns an error, use
// errors.Is with this package's Err values to learn which of these it is: nothing ran ([ErrUnavailable], [ErrExists],
// [ErrRejected]), the business ran before ([ErrAlreadyCommitted]), it failed (the business's own error), or its outcome
// is unknown ([ErrOutcomeUnknown]).
//
// # How the coordinator asks
//
// The producer attends: New opens streams to the coordinators, over which questions come and answers go. The service
// serves no port, and nothing must reach it. With [Config.CallbackTarget] the coordinator calls the service instead:
// [Producer.Register] serves Confirm and DeleteBusiness on a gRPC server of the service.
//
// # Repeating a Send
//
// The id is the service's own business number. Send may be called again with the same id and content. A business that
// is known to have committed does not run twice: the message is submitted again and ErrAlreadyCommitted returned. A
// message that was rolled back stays so; a new attempt takes a new id, such as 1001-2. An attempt that ends with
// [ErrSendAgain] may be made again under the same id: its business did not begin, or says that nothing of it was
// committed and that the reason passes. docs/reference/codes.md has the whole table. A business with an unknown outcome
// does run again. The SQL markers end such a run at its marker if the earlier run has committed. With other markers let
// the business recognise what an earlier run committed, by a unique key on the id, and return nil then, not an error.
//
// # Markers in memory and in Redis
//
// A service without an SQL database calls [Producer.Send], with markers in Redis (package redismarker) or, where a
// restart may forget them, in memory:
//
//	p, err := producer.New(producer.Config{Name: "orders", Coordinator: "127.0.0.1:9090", Markers: memory.New()})
//	err = p.Send(ctx, message, func(ctx context.Context) error {
//		return pay(ctx, order)                        // returns nil only after its transaction has committed
//	})
//
// In both the marker is set just after the commit, and a process that dies in between leaves a committed transaction
// without a marker. No marker is no verdict: the transaction may still be running. The coordinator is then answered
// UNKNOWN, and at its limit it sets the message aside as ABANDONED, where an operator sees it. Nothing is lost, but an
// operator has to look. Set [Config.Resolve] to answer such questions from the business data itself, and hardly any are
// left:
//
//	Resolve: func(ctx context.Context, id string, final bool) (marker.Verdict, error) {
//		switch paid, err := orderIsPaid(ctx, id); {
//		case err != nil:
//			return marker.Unknown, err
//		case paid:
//			return marker.Committed, nil
//		case final && canNeverBePaidAnyMore(ctx, id):
//			return marker.RolledBack, nil
//		}
//		return marker.Unknown, nil
//	},
//
// Two runs of one id, in two replicas or by the single steps in one process, are not kept apart either. If one run
// fails and rolls the message back, and the other commits after it, the message is gone. The other run gets
// [ErrContradicted], as the rolled-back marker stands until it expires. Its business has committed then: undo it, or
// send the message under a new id. Where Send has returned nil already, [Config.OnUndeliverable] is called.
//
// The SQL markers have no such gap: their marker is a row of the business's own transaction. A tombstone under its key
// makes a last answer of ROLLED_BACK true for ever. With them a business of Producer.Send that leaves no marker gets
// [ErrUnmarked].
//
// # The contract of the business function of Producer.Send
//
// It returns nil only after its transaction has committed. It returns an error only when it is certain that nothing has
// been committed under this id, by this run or an earlier one: Send then rolls the message back, and it is gone for
// good. When it is not certain, it says so with ErrOutcomeUnknown; then Send neither marks nor rolls back, and leaves
// the question to Confirm. An error of Commit is never certain, as the database may have committed before the
// connection broke. [Unsure] says it in one word:
//
//	func(ctx context.Context) error {
//		tx, err := db.BeginTx(ctx, nil)
//		if err != nil {
//			return err                               // certain: nothing was committed
//		}
//		defer tx.Rollback()
//		if err := markPaid(ctx, tx, "1001"); err != nil {
//			return err                               // certain as well
//		}
//		return producer.Unsure(tx.Commit())          // nil stays nil
//	}
//
// An error that wraps context.Canceled or context.DeadlineExceeded counts as unknown too, unless it wraps
// [ErrNotCommitted]. A business that panics is neither marked nor rolled back; the panic goes on to the caller.
//
// # Your own transactions
//
// Where a function does not fit, call the steps: [Producer.SendHalf], then the transaction, then [Producer.Submit] or
// [Producer.Rollback] under the same contract. [Producer.Wait] waits until the broker has the message.
//
// Concurrent calls are gathered into the coordinator's batch calls. A Producer is safe for concurrent use; make one for
// the life of the process and [Producer.Close] it before the gRPC server stops.
package producer
