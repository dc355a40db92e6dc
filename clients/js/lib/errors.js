'use strict';

/** What happened, why, and what to do: the text of every error of this package. */
class OncewireError extends Error {
    constructor(what, why, remedy) {
        super(`${what}: ${why}; ${remedy}`);
        this.name = this.constructor.name;
    }
}

/** The journal cannot be read or written. Nothing that depends on it goes on. */
class JournalError extends OncewireError {}

/** The link or client was closed by this program. */
class Closed extends OncewireError {}

/** Trying again changes nothing: the router's condition is in `condition`. */
class LinkRefused extends OncewireError {
    constructor(what, why, remedy, condition = '') {
        super(what, why, remedy);
        this.condition = condition;
    }
}

/** Another process attaches a link of the same container-id and name. */
class LinkStolen extends LinkRefused {}

/** A message has another outcome than accepted: see `outcome`. */
class NotAccepted extends OncewireError {
    constructor(outcome) {
        const remedies = {
            unknown: 'some subscriptions may have it: publish it again only if a second copy does no harm',
            released: 'no subscription matched it, or too few did: publish it again later',
        };
        super(`the message was not accepted`, `its outcome is ${outcome.kind}${outcome.description ? ` (${outcome.description})` : ''}`,
            remedies[outcome.kind] || 'correct the message, or look at the subscription that refused it');
        this.outcome = outcome;
    }
}

module.exports = { OncewireError, JournalError, Closed, LinkRefused, LinkStolen, NotAccepted };
