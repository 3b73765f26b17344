// An order service that keeps the contract of msghandler over HTTP and JSON: PostgreSQL, the package pg and Node.js.
//
// POST /orders takes an order such as {"id": "1001", "amount": 12}. The order's message is published if, and only if,
// the order's transaction commits, whichever process dies when. The coordinator calls POST /confirm and
// POST /deleteBusiness. docs/howto/java.md#run-the-example-in-nodejs says how to run it, and
// docs/reference/languages-contract.md what each step is for.

import {createHash, timingSafeEqual} from 'node:crypto';
import {readFile} from 'node:fs/promises';
import http from 'node:http';
import {setTimeout as sleep} from 'node:timers/promises';
import pg from 'pg';

const PRODUCER = 'node-orders', QUEUE = PRODUCER;

// Outcome unknown, or not now: make the same call again, with the same content. All other codes are answers.
const AGAIN = ['unavailable', 'resource_exhausted', 'unknown', 'deadline_exceeded', 'internal', 'aborted', 'canceled'];

const COMMITTED = 'VERDICT_COMMITTED', ROLLED_BACK = 'VERDICT_ROLLED_BACK';
const UNKNOWN = 'VERDICT_UNKNOWN', UNAVAILABLE = 'VERDICT_UNAVAILABLE';
const VERDICTS = {2: COMMITTED, 3: ROLLED_BACK}; // in the column verdict of the table

const NOW = '(EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::BIGINT'; // milliseconds, by the clock of the database
const WEEK = 7 * 24 * 3600 * 1000;

const LOCK_NOT_AVAILABLE = '55P03';

// The message's business has not committed, and never will under this id.
class RolledBack extends Error {}

// The rows of the SDK's table msghandler_markers: what became of each message (docs/reference/tables.md). The first insert of an
// id decides: its business COMMITTED, or a tombstone ROLLED_BACK.
class Markers {
  constructor(url) {
    // Two pools: while all businesses wait for locks, the coordinator still gets its answers.
    this.business = connect(url, 20);
    this.answers = connect(url, 5);
  }

  // The first write of a business. False: a tombstone stands, or the marker of an earlier run.
  async mark(tx, id) {
    const inserted = await tx.query(`INSERT INTO msghandler_markers (producer, id, verdict, created_at)
      VALUES ($1, $2, 2, ${NOW}) ON CONFLICT DO NOTHING`, [PRODUCER, Buffer.from(id)]);
    return inserted.rowCount === 1;
  }

  // The verdicts that are committed, by id.
  async look(ids) {
    const {rows} = await this.answers.query(`SELECT id, verdict FROM msghandler_markers
      WHERE producer = $1 AND id = ANY($2::BYTEA[])`, [PRODUCER, bytes(ids)]);
    return new Map(rows.map(row => [row.id.toString(), VERDICTS[row.verdict]]));
  }

  // Plants a tombstone where there is no row: such a business can never commit. Then says what stands. A tombstone
  // waits for the transaction that holds its id. An id that is held for longer gets no verdict.
  async settle(ids) {
    if (!await this.plant(ids, '1s')) {
      for (const id of ids) await this.plant([id], '10ms'); // the others must not wait for one
    }
    return this.look(ids);
  }

  // Reports whether no other transaction was in the way.
  async plant(ids, lockTimeout) {
    try {
      await transaction(this.answers, lockTimeout, tx => tx.query( // sorted: two such inserts must not deadlock
        `INSERT INTO msghandler_markers (producer, id, verdict, created_at, cleaned_at)
         SELECT $1, id, 3, ${NOW}, ${NOW} FROM unnest($2::BYTEA[]) AS id ORDER BY id ON CONFLICT DO NOTHING`,
        [PRODUCER, bytes(ids)]));
      return true;
    } catch (error) {
      if (error.code === LOCK_NOT_AVAILABLE) return false;
      throw error;
    }
  }

  // Rows stay for a week, for a coordinator that asks again; each time some that are older are removed.
  async clean(ids) {
    await this.answers.query(`UPDATE msghandler_markers SET cleaned_at = ${NOW}
      WHERE producer = $1 AND id = ANY($2::BYTEA[]) AND cleaned_at IS NULL`, [PRODUCER, bytes(ids)]);
    const old = `producer = $1 AND cleaned_at < ${NOW} - $2::BIGINT`; // twice: other partitions have rows of the same ctid
    await this.answers.query(`DELETE FROM msghandler_markers WHERE ${old} AND ctid IN (SELECT ctid FROM msghandler_markers
      WHERE ${old} LIMIT 1000)`, [PRODUCER, WEEK]);
  }
}

function connect(url, max) {
  const pool = new pg.Pool({
    connectionString: url, max, connectionTimeoutMillis: 2000, keepAlive: true,
    query_timeout: 8000, // more than locks take: a network that loses all bytes must not keep the connections for ever
  });
  pool.on('error', () => {}); // a lost connection that nobody uses: the pool replaces it
  pool.on('connect', client => client.on('error', () => {})); // one in use: its next query fails
  return pool;
}

async function transaction(pool, lockTimeout, work) {
  const tx = await pool.connect();
  let broken;
  try {
    await tx.query(`BEGIN; SET LOCAL lock_timeout = '${lockTimeout}'`);
    const result = await work(tx);
    const {command} = await tx.query('COMMIT'); // ROLLBACK, where work has swallowed an error of the database
    if (command !== 'COMMIT') throw new Error('the database has rolled the transaction back');
    return result;
  } catch (error) {
    await tx.query('ROLLBACK').catch(lost => { broken = lost; });
    throw error;
  } finally {
    tx.release(broken);
  }
}

const bytes = ids => ids.map(id => Buffer.from(id));

// A call of the coordinator that has failed. Without a code its outcome is unknown.
class CallError extends Error {
  constructor(code, message) {
    super(`${code ?? 'no answer'}: ${message}`);
    this.again = !code || AGAIN.includes(code);
  }
}

// Makes a call of msghandler.v1.MessageHandlerService (docs/reference/http.md), and the same call again for so many milliseconds
// while its outcome is unknown.
async function call(coordinator, method, request, patience) {
  const ends = Date.now() + patience;
  for (let pause = 50; ; pause = Math.min(2 * pause, 2000)) {
    try {
      return await post(`${coordinator}/msghandler.v1.MessageHandlerService/${method}`, request);
    } catch (error) {
      if (!error.again || Date.now() + pause > ends) throw error;
    }
    await sleep(pause * (1 + Math.random()) / 2);
  }
}

// The tokens of a file, one a line; empty lines and comments do not count.
const tokensOf = async file =>
  (await readFile(file, 'ascii')).split('\n').map(line => line.trim()).filter(line => line && !line.startsWith('#'));

// The header with the first token of a file, which may change; none without a file. A token is shown over TLS only, or on the
// loopback.
async function authorization(url) {
  const file = process.env.MSGHANDLER_TOKEN_FILE, to = new URL(url);
  if (!file) return {};
  if (to.protocol !== 'https:' && !['127.0.0.1', '[::1]', 'localhost'].includes(to.hostname)) {
    throw new Error('a token is shown over TLS only: write https:// in COORDINATOR');
  }
  return {Authorization: `Bearer ${(await tokensOf(file))[0]}`};
}

async function post(url, request) {
  let response, answer;
  try {
    response = await fetch(url, {
      method: 'POST', body: JSON.stringify(request), redirect: 'error', signal: AbortSignal.timeout(5000),
      headers: {'Content-Type': 'application/json', 'Connect-Timeout-Ms': '5000', ...await authorization(url)},
    });
    answer = await response.json();
  } catch (error) {
    throw new CallError(null, error.message);
  }
  if (response.status !== 200) throw new CallError(answer.code, answer.message);
  return answer;
}

// Sends the messages of transactions that commit, and no others.
class Producer {
  constructor(coordinator, target, markers) {
    Object.assign(this, {coordinator, target, markers});
    this.storing = new Set(); // ids whose half message is on its way: their business has not begun
  }

  // Runs business(tx), unless it ran before, and sends the message if it commits. Returns what stands then. RolledBack
  // means that nothing commits under this id. After any other error make the same call again.
  async send(message, business) {
    let stands = (await this.markers.look([message.id])).get(message.id);
    if (stands === ROLLED_BACK) return stands;
    const state = await this.store(message);
    if (!stands && state !== 'STATE_PENDING') return state;
    stands ??= await this.run(message.id, business);
    if (stands === COMMITTED) this.submit(message.id); // in the background: a Submit that is lost loses nothing
    return stands;
  }

  async store(message) {
    this.storing.add(message.id);
    try {
      const request = {producer: PRODUCER, callbackTarget: this.target, message};
      return (await call(this.coordinator, 'SendHalfMessage', request, 30_000)).state;
    } finally {
      this.storing.delete(message.id);
    }
  }

  async run(id, business) {
    let begun = false;
    try {
      await transaction(this.markers.business, '5s', async tx => {
        begun = await this.markers.mark(tx, id);
        if (begun) await business(tx);
      });
    } catch (error) { // one of COMMIT too, which may have committed: only the database can tell
      if (!begun) throw error; // a lock or a lost connection: nothing is decided, and the id stays usable
      const stands = (await this.markers.settle([id])).get(id);
      if (stands === ROLLED_BACK) {
        await this.rollBack(id, error.message);
        throw new RolledBack(error.message);
      }
      if (stands !== COMMITTED) throw error; // the coordinator asks later, and learns what stands by then
    }
    return begun ? COMMITTED : (await this.markers.look([id])).get(id);
  }

  async rollBack(id, reason) {
    await call(this.coordinator, 'Rollback', {producer: PRODUCER, id, reason: reason.slice(0, 500)}, 3000)
      .catch(() => {}); // lost, the coordinator asks and meets the tombstone
  }

  async submit(id) {
    await call(this.coordinator, 'Submit', {producer: PRODUCER, id}, 1000)
      .catch(error => console.error(`Submit of ${id}: ${error.message}`)); // the coordinator will ask
  }

  // What stands of each message, for a coordinator: asked at any time, and about what a replica has sent.
  async confirm(ids, final) {
    const storing = new Set(this.storing);
    let found = new Map(), otherwise = UNKNOWN; // no row is no verdict: it may be committed a moment later
    try {
      found = await this.markers.look(ids);
      const open = ids.filter(id => !found.has(id) && !storing.has(id));
      if (final) for (const [id, verdict] of await this.markers.settle(open)) found.set(id, verdict);
    } catch (error) {
      console.error(`confirm: ${error.message}`);
      otherwise = UNAVAILABLE; // it says nothing of the message, and must cost it nothing
    }
    return ids.map(id => ({id, verdict: found.get(id) ?? (storing.has(id) ? UNAVAILABLE : otherwise)}));
  }
}

// The service's own POST /orders, and the callbacks. Keep the callbacks off the public network.
class Service {
  constructor(producer, tokens) {
    Object.assign(this, {producer, tokens});
  }

  async serve(request, response) {
    const failed = error => [error.status ?? 503, {error: error.message}];
    const [status, body] = await this.route(request).catch(failed);
    response.writeHead(status, {'Content-Type': 'application/json'}).end(JSON.stringify(body));
  }

  async route(request) {
    const routes = {'POST /orders': this.order, 'POST /confirm': this.confirm, 'POST /deleteBusiness': this.clean};
    const route = routes[`${request.method} ${request.url}`];
    if (!route) return [404, {error: 'there is no such path'}];
    if (route !== this.order && !await this.knows(request.headers.authorization ?? '')) {
      return [401, {error: 'the caller shows no token of a coordinator'}]; // a stranger's question plants a tombstone
    }
    return route.call(this, await read(request));
  }

  async order({id, amount}) {
    if (!isText(id) || !Number.isInteger(amount)) throw new BadRequest('an order has an id and an amount');
    const body = Buffer.from(JSON.stringify({amount, id})).toString('base64'); // the same each time it is sent
    const message = {id, routingKey: QUEUE, contentType: 'application/json', body};
    try {
      const stands = await this.producer.send(message, tx =>
        tx.query('INSERT INTO orders (id, amount) VALUES ($1, $2)', [id, amount]));
      const committed = [COMMITTED, 'STATE_SENDABLE', 'STATE_DONE', 'STATE_DEAD'].includes(stands);
      return [committed ? 200 : 409, {stands}];
    } catch (error) {
      if (error instanceof RolledBack) return [422, {stands: ROLLED_BACK, error: error.message}];
      throw error; // 503: the same order may be sent again
    }
  }

  async confirm(question) {
    return [200, {confirmations: await this.producer.confirm(check(question), question.final ?? false)}];
  }

  async clean(request) {
    await this.producer.markers.clean(check(request));
    return [200, {}];
  }

  // Whether the call carries one of the tokens. The file is read each time, so that a token can be replaced.
  async knows(authorization) {
    const shown = digest(/^bearer (.*)$/i.exec(authorization)?.[1] ?? '');
    const fits = (await tokensOf(this.tokens)).map(token => timingSafeEqual(digest(token), shown));
    return fits.includes(true); // all were compared, however soon one fits
  }
}

class BadRequest extends Error {
  constructor(message, status = 400) {
    super(message);
    this.status = status;
  }
}

const digest = token => createHash('sha256').update(token).digest();

const isText = value => typeof value === 'string' && Buffer.from(value).toString() === value; // no half characters

function check({producer, ids, final = false}) {
  if (!isText(producer)) throw new BadRequest('producer is a text');
  if (producer !== PRODUCER) throw new BadRequest(`this is the producer ${PRODUCER}`, 409);
  if (!Array.isArray(ids) || !ids.every(isText)) throw new BadRequest('ids is a list of texts');
  if (typeof final !== 'boolean') throw new BadRequest('final is true or false');
  return ids;
}

async function read(request) {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    if ((length += part.length) > 1 << 20) throw new BadRequest('a request has up to 1 MiB');
    parts.push(part);
  }
  try {
    return Object(JSON.parse(Buffer.concat(parts).toString()));
  } catch (error) {
    throw new BadRequest(error.message);
  }
}

const {COORDINATOR = 'http://127.0.0.1:9090', LISTEN = '127.0.0.1:7001', COORDINATOR_TOKENS} = process.env;
const markers = new Markers(process.env.DATABASE_URL);
await markers.business.query(`CREATE TABLE IF NOT EXISTS orders (
  id TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount > 0))`);
if (!COORDINATOR_TOKENS) {
  throw new Error('set COORDINATOR_TOKENS: without it every client could have transactions rolled back');
}
const producer = new Producer(COORDINATOR, process.env.CALLBACK_URL ?? `http://${LISTEN}`, markers);
const service = new Service(producer, COORDINATOR_TOKENS);
const [host, port] = LISTEN.split(':');
http.createServer((request, response) => service.serve(request, response))
  .listen(port, host, () => console.log('ready'));
