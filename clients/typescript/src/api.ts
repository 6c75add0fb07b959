// Generated from openapi.json by `npm run generate`. What is written here by hand is lost.

export interface paths {
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether this replica is alive. */
        get: operations["healthz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether this replica can serve: it reaches its database, whose schema is this program's or newer, and does not stop. */
        get: operations["readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit.consistency": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Prove that the transparency log only grew between two sizes. */
        post: operations["audit.consistency"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit.entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * List entries of the transparency log, in its order.
         * @description All of the log: entries of other tenants show their hashes alone.
         */
        post: operations["audit.entries"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit.head": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show the head of the transparency log. */
        post: operations["audit.head"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit.inclusion": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Prove that entries stand in the transparency log. */
        post: operations["audit.inclusion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit.receipt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make the receipt of a destructive command: one document that proves, without the server, what became of it. */
        post: operations["audit.receipt"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/bundles.download": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download a support bundle as it was stored: a tar, compressed with Zstandard.
         * @description `Range` with one range of bytes answers 206 and that part of it. `Repr-Digest` is the whole bundle's SHA-256 as the node told
         *     it in its result; it is absent where the node told none.
         */
        get: operations["bundles.download"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/bundles.files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the files of a support bundle, as its own manifest describes them. */
        post: operations["bundles.files"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/bundles.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List a node's support bundles, newest first, and whether they are in the store. */
        post: operations["bundles.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/bundles.read": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read one file of a support bundle.
         * @description `Repr-Digest` is the file's SHA-256 as the bundle's manifest tells it.
         */
        get: operations["bundles.read"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commandBatches.approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Hand in an approval, signed with an approver's own key.
         * @description When the quorum is met with it, the batch's commands are sent. An approval that is there already changes nothing.
         */
        post: operations["commandBatches.approve"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commandBatches.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Propose a batch of destructive commands.
         * @description The same key with the same content again answers the batch as it stands.
         */
        post: operations["commandBatches.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commandBatches.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a batch, with its whole scope. */
        post: operations["commandBatches.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commandBatches.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the tenant's batches, newest first. */
        post: operations["commandBatches.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commandBatches.reject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Reject a batch: what of it was not sent yet is cancelled, and nothing joins it any more. */
        post: operations["commandBatches.reject"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commands.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Call a command off.
         * @description One that waits is cancelled at once; one that its node has keeps its state until the node says what became of it; one that is
         *     over stays as it is.
         */
        post: operations["commands.cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commands.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a command. */
        post: operations["commands.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commands.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List commands, newest first: a node's, or those of all nodes that the caller may read. */
        post: operations["commands.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commands.output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Read what a command's programs have written.
         * @description Of each stream the first MiB can be followed; the command's result keeps the account of all of it. With `waitSeconds` the answer
         *     comes when there is something new.
         */
        post: operations["commands.output"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/commands.run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Queue a command for a node.
         * @description The payload is checked by the kind's own component, the one that the node will run. The same key with the same kind and
         *     payload again answers the command as it stands.
         */
        post: operations["commands.run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events.watch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Watch what happens, as server-sent events.
         * @description An event's name is its topic, its id where to resume after it, its data an `Event`. Events named `command.progress` have no
         *     id and are not on record; their data is a `Progress`. The first frame has an id and no data: where the watch begins.
         */
        get: operations["events.watch"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds.activate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a registered component the one of its name that takes new commands.
         * @description The one that did is retired; its commands still run with it. An older digest rolls back. One that may do more than the one in
         *     service, or is watched less, needs `acceptWider`, and an approved batch where a quorum is configured.
         */
        post: operations["kinds.activate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a kind: the active component of a name, or the one with a digest. */
        post: operations["kinds.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List kinds by name, of one name the newest first. */
        post: operations["kinds.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds.register": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Register a component.
         * @description It is inspected, linked, and its examples are run through its own `validate`; every obstacle is named. The same component
         *     again changes nothing.
         */
        post: operations["kinds.register"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/kinds.retire": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Take a component out of service for new commands. Those bound to it still run. */
        post: operations["kinds.retire"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.certificates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List a node's certificates, the newest first. */
        post: operations["nodes.certificates"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.createJoinToken": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a one-time token with which a machine joins. It is shown once. */
        post: operations["nodes.createJoinToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Delete a node: its pending commands are cancelled, those that it has end by their deadlines, and its sessions end. */
        post: operations["nodes.delete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a node. */
        post: operations["nodes.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.getSpec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show what a node should be, and how far it is. */
        post: operations["nodes.getSpec"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.label": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Set labels of a node; `null` takes one away, and those that are not named stay. */
        post: operations["nodes.label"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the tenant's nodes by name. */
        post: operations["nodes.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.quarantine": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Set a node apart: no GPU of it is reserved, it is not mended by itself, and `commands.run` takes nothing destructive for it.
         * @description One that is so already stays as it is. What is reserved stays reserved.
         */
        post: operations["nodes.quarantine"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Let a node go that is set apart. One that is not stays as it is. */
        post: operations["nodes.release"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.revokeCertificate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Revoke a certificate of a node, or all that it has.
         * @description Its session ends at once, on whichever replica it is, and what is reported on it from now on has no effect. Without another
         *     certificate the machine has to join again. Revoking what is revoked changes nothing.
         */
        post: operations["nodes.revokeCertificate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes.setSpec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Set what a node should be.
         * @description It makes the next generation of the node's spec, signed where signing is configured. Holds are not set: they come from
         *     reservations.
         */
        post: operations["nodes.setSpec"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This document. */
        get: operations["openapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/releases.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a binary of the daemon by its digest. */
        post: operations["releases.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/releases.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List binaries of the daemon, newest first; at most 200. */
        post: operations["releases.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/releases.push": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Push a binary of the daemon.
         * @description The signature is checked before a byte is read, the digest when all have come. The same file again changes nothing.
         */
        post: operations["releases.push"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/remediations.clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a node go on after attempts of which nobody could tell how they ended: somebody has looked at it.
         * @description What was tried counts on. A node without such attempts stays as it is.
         */
        post: operations["remediations.clear"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/remediations.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List what was tried to mend nodes, newest first, and which nodes are left alone now, and why. */
        post: operations["remediations.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reserve a GPU, or a slot of one.
         * @description It stands in the next generation of the node's spec, and is active once the node has signed that it holds the GPU. The same
         *     key again answers the reservation as it stands.
         */
        post: operations["reservations.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a reservation. */
        post: operations["reservations.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List a node's reservations, newest first. */
        post: operations["reservations.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/reservations.release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Give a reservation back. One that was before stays as it is. */
        post: operations["reservations.release"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begin no more steps for good. What is under way goes on, and nothing is taken back. */
        post: operations["rollouts.cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a rollout with its nodes, as far as the caller may read them. */
        post: operations["rollouts.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List rollouts, newest first; at most 200. */
        post: operations["rollouts.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begin no more steps for now. What is under way goes on. */
        post: operations["rollouts.pause"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Go on. Failures so far count no more. */
        post: operations["rollouts.resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/rollouts.start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Bring a release to nodes, few at a time.
         * @description The nodes are those that have the labels now. The same key again answers the rollout as it stands.
         */
        post: operations["rollouts.start"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/runners.allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a user of the database act for a gateway.
         * @description An administrator of the database server makes the user; what it may do there is the role `better_compute_runner`'s.
         */
        post: operations["runners.allow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/runners.disallow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Take that back. What the user has leased stays its own until the lease ends. */
        post: operations["runners.disallow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/runners.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a gateway's slug, who acts for it, what waits and what is leased. */
        post: operations["runners.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/runners.history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the commands of gateways whose runners lease them, newest first, with their output. */
        post: operations["runners.history"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/runners.set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Have a gateway's commands leased by runners under a slug, or, without one, sent over its sessions again.
         * @description Open sessions of the node end. It needs the role `gateway`, and no lease that counts.
         */
        post: operations["runners.set"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make a token, and its identity if there is none of this name. It is shown once.
         * @description The identity gets the grants in addition to those that it has. The caller must have all of them itself.
         */
        post: operations["tokens.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the tenant's tokens, newest first, without the tokens themselves. */
        post: operations["tokens.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens.revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a token count for nothing, at once. */
        post: operations["tokens.revoke"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens.whoami": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show who the token is for, and what they may do. */
        post: operations["tokens.whoami"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Have events sent to a URL.
         * @description It gets what happens from now on. The answer holds the secret that verifies deliveries; it is shown this once.
         */
        post: operations["webhooks.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Delete a webhook, with all its deliveries. */
        post: operations["webhooks.delete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List a webhook's deliveries, newest first. */
        post: operations["webhooks.deliveries"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get a webhook. */
        post: operations["webhooks.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List the tenant's webhooks, oldest first. */
        post: operations["webhooks.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.redeliver": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a delivery again, or all that were given up since a time.
         * @description Each keeps its id, and has all its attempts again.
         */
        post: operations["webhooks.redeliver"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.rotateSecret": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Make another secret for a webhook. It is shown this once.
         * @description Deliveries carry the signatures of both secrets for a while.
         */
        post: operations["webhooks.rotateSecret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send an event that is none, `webhook.test`, to see whether the receiver takes it. */
        post: operations["webhooks.test"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks.update": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Change a webhook: what is absent stays as it is.
         * @description Pending deliveries go to a new URL as well. One that is enabled again gets what happens from then on, and what was pending.
         */
        post: operations["webhooks.update"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workflows.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Call a workflow off: no further step begins, and the command of the open one is cancelled.
         * @description It ends when that command's node has said what became of it. The node stays set apart. One that is over stays as it is.
         */
        post: operations["workflows.cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workflows.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begin a workflow: the node is set apart, and the steps run one after the other.
         * @description A step begins once the one before it is known to have succeeded, by the node's signature where its kind is attested. Each
         *     destructive step has a batch of its own, and waits for approvals where they are asked for. The same key again answers the
         *     workflow as it stands.
         */
        post: operations["workflows.create"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workflows.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Show a workflow. */
        post: operations["workflows.get"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workflows.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List workflows, newest first. */
        post: operations["workflows.list"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/workflows.retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Have a workflow go on from the step that did not succeed. Look at the node first.
         * @description What is known to have succeeded is not done again, but that diagnostics are asked anew, all of them.
         */
        post: operations["workflows.retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description `kinds.activate`: the component by its digest. */
        ActivateKind: {
            /** @description Activate it although it may do more than the one in service, or is watched less. */
            acceptWider?: boolean;
            /** @description Where a quorum is configured and it may do more: the approved batch that holds its activation. */
            batchId?: string;
            /** @description SHA-256 of its component, hexadecimal. */
            digest?: string;
            /** @description The kind's name, if it is to be checked. */
            name?: string;
        };
        /** @description Why a call failed. */
        ApiError: {
            /** @description What programs decide by. */
            code: components["schemas"]["Code"];
            /** @description Particulars, by code. `INVALID_INPUT`: `{"problems":[{"field" | "pointer","rule"}]}`; `INVALID_STATE`: `{"reason",…}`. */
            details?: unknown;
            /** @description What people read: what is wrong, and what to do. */
            message: string;
        };
        /** @description `commandBatches.approve`. */
        ApproveBatch: {
            /** @description What an approver signed: `{"approver","approvedAtMs","expiresAtMs","signature"}`, keys and signatures hexadecimal. */
            approval: Record<string, never>;
            /** @description `batch_…` */
            batchId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A batch, and where it stands. */
        Batch: {
            /** @description The approvals that came. */
            approvals: components["schemas"]["BatchApproval"][];
            /** @description `batch_…` */
            batchId: string;
            /**
             * Format: date-time
             * @description When it was rejected or expired.
             */
            closedAt?: string;
            /**
             * Format: date-time
             * @description When it was made.
             */
            createdAt: string;
            /** @description What approvers sign. */
            document: Record<string, never>;
            /**
             * Format: date-time
             * @description Until when its commands may be accepted.
             */
            expiresAt: string;
            /**
             * Format: int32
             * @description How many people's approvals are missing, at least; absent where none are asked for.
             */
            missing?: number;
            /** @description What it takes, by the control plane's present policy; absent where nobody is asked. */
            policy?: unknown;
            /** @description Why it was asked for. */
            reason: string;
            /** @description Who rejected it. */
            rejectedBy?: string;
            /** @description Why it was rejected. */
            rejection?: string;
            /** @description The name of the identity that asked. */
            requestedBy: string;
            /** @description What it allows; absent in lists. */
            scope?: components["schemas"]["BatchLeaf"][];
            /**
             * Format: int64
             * @description How many leaves its scope has.
             */
            size: number;
            /** @description `open`, `approved`, `rejected` or `expired`. */
            state: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description An approval that came. */
        BatchApproval: {
            /**
             * Format: date-time
             * @description When they signed.
             */
            approvedAt: string;
            /** @description Their key, hexadecimal. */
            approver: string;
            /** @description Whether it counts now. */
            counts: boolean;
            /**
             * Format: date-time
             * @description Until when it counts.
             */
            expiresAt: string;
            /** @description Whose it is. */
            name: string;
            /** @description Why it does not. */
            void?: string;
        };
        /** @description One thing that a batch allows. */
        BatchLeaf: {
            /** @description The kind's name. */
            kind: string;
            /** @description The only payload, by SHA-256 of its canonical JSON (RFC 8785), hexadecimal; absent for any. */
            payloadSha256?: string;
            /** @description What it happens to: `node_…` */
            subject: string;
        };
        /** @description `commandBatches.get`. */
        BatchRef: {
            /** @description `batch_…` */
            batchId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A command's support bundle. */
        Bundle: {
            /** @description The object's key in the store. */
            bundleKey: string;
            /**
             * Format: int64
             * @description How large it is; absent unless it is stored.
             */
            bytes?: number;
            /** @description `cmd_…` */
            commandId: string;
            /** @description The command's state. */
            commandState: string;
            /**
             * Format: date-time
             * @description When its command was queued.
             */
            createdAt: string;
            /** @description The kind's name. */
            kind: string;
            /**
             * Format: int64
             * @description The most that it may have.
             */
            maxBytes: number;
            /** @description `node_…` */
            nodeId: string;
            /** @description SHA-256 as the node told it in its result, 64 hexadecimal digits; absent where it told none. */
            sha256?: string;
            /** @description Whether it is there. */
            state: components["schemas"]["BundleState"];
            /**
             * Format: date-time
             * @description Since when it is there; absent unless it is stored.
             */
            storedAt?: string;
        };
        /** @description A file in a bundle, as the node described it. */
        BundleFile: {
            /**
             * Format: int64
             * @description How large it is.
             */
            bytes: number;
            /** @description Its name in the bundle. */
            path: string;
            /** @description Of what is in the bundle, 64 hexadecimal digits; empty where the node told none. */
            sha256: string;
            /** @description Where it comes from. */
            source: string;
            /** @description Whether its oldest part was left out. */
            truncated: boolean;
        };
        /** @description What a bundle says that it holds. */
        BundleFiles: {
            /** @description The files. */
            files: components["schemas"]["BundleFile"][];
            /** @description What else went wrong. */
            problems: unknown[];
            /** @description What was left out, and why: `{"path" | "source", "reason"}`. */
            skipped: unknown[];
        };
        /** @description `bundles.files`; the query of `bundles.download`. */
        BundleRef: {
            /** @description `cmd_…`, the command that made it */
            commandId: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /**
         * @description Whether a bundle is there.
         * @enum {string}
         */
        BundleState: "stored" | "missing" | "unknown";
        /** @description `tokens.whoami`: the caller. */
        Caller: {
            /** @description What it may do. */
            grants: components["schemas"]["Grant"][];
            /** @description The identity's name. */
            identity: string;
            /** @description The tenant's name. */
            tenant: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description What `remediations.clear` did. */
        Cleared: {
            /**
             * Format: int64
             * @description How many ambiguous attempts count as looked at now; 0 where there was none.
             */
            cleared: number;
        };
        /** @description `remediations.clear`: lets a node go on after ambiguous outcomes. */
        ClearRemediations: {
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /**
         * @description The stable codes.
         * @enum {string}
         */
        Code: "UNAUTHENTICATED" | "PERMISSION_DENIED" | "NOT_FOUND" | "INVALID_INPUT" | "UNSUPPORTED" | "INVALID_STATE" | "CONFLICT" | "TOO_LARGE" | "UNAVAILABLE" | "INTERNAL";
        /** @description A command, and where it stands. */
        Command: {
            /** @description Whether the node signed this end and this result, checked now. Never for what the control plane settled by itself. */
            attested?: boolean;
            /** @description SHA-256 of the node's certificate whose key signed it, hexadecimal; absent where it is not attested. */
            attestedBy?: string;
            /** @description Whether it is held until its batch has its approvals. */
            awaitingApproval?: boolean;
            /** @description The batch that it belongs to. */
            batchId?: string;
            /** @description The key of the object in the store that the bundle goes to; absent where it uploads none. */
            bundleKey?: string;
            /**
             * Format: date-time
             * @description Since when it is to stop.
             */
            cancelRequestedAt?: string;
            /**
             * Format: date-time
             * @description When it was queued.
             */
            createdAt: string;
            /** @description Whether the kind destroys data or takes the node out of service. */
            destructive: boolean;
            /**
             * Format: date-time
             * @description When it was first sent.
             */
            dispatchedAt?: string;
            /** @description `cmd_…` */
            id: string;
            /** @description The queue's key: `api:…`, `wf:…`, … */
            idempotencyKey: string;
            /** @description The kind's name. */
            kind: string;
            /** @description SHA-256 of the kind's component, hexadecimal. */
            kindDigest: string;
            /** @description `control`, `provision` or `bulk`. */
            lane: string;
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: date-time
             * @description Until when it may wait to be accepted.
             */
            notAfter: string;
            /**
             * Format: date-time
             * @description When it may be sent at the earliest; absent for at once.
             */
            notBefore?: string;
            /** @description What was asked. */
            payload: unknown;
            /** @description Why, as a stable code; empty for success and while it is not over. */
            reason: string;
            /**
             * Format: date-time
             * @description The node's own time of its result.
             */
            reportedAt?: string;
            /** @description Who asked for it: the identity's name at that time, or `module/<name>`. */
            requestedBy?: string;
            /** @description The result, or a failure's particulars; absent while there is none. */
            result?: unknown;
            /** @description Whether the kind may be run again after an interruption. */
            retrySafe: boolean;
            /**
             * Format: int64
             * @description Its place among the node's commands.
             */
            seq: number;
            /**
             * Format: date-time
             * @description When it was over.
             */
            settledAt?: string;
            /** @description `pending`, `dispatched`, `acked`, `running`, `succeeded`, `failed`, `rejected`, `expired` or `cancelled`. */
            state: string;
            /** @description Whether it uploads a support bundle. */
            supportBundle?: boolean;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description What was written after a place. */
        CommandOutput: {
            /** @description Whether nothing follows: the command is over and these are the last. */
            isOver: boolean;
            /** @description The place after them. */
            next: components["schemas"]["OutputPlace"];
            /** @description In the order of runs and offsets. */
            pieces: components["schemas"]["OutputPiece"][];
        };
        /** @description `commands.get` and `commands.cancel`. */
        CommandRef: {
            /** @description `cmd_…` */
            commandId: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description Something that is the matter with a node. */
        Condition: {
            /** @description Why, in words. */
            message: string;
            /**
             * Format: date-time
             * @description Since when.
             */
            since: string;
            /** @description What has it: a GPU's UUID; empty for the node. */
            subject: string;
            /** @description `RowRemapPending`, `RebootRequired`, `SpecRejected`, … */
            type: string;
        };
        /** @description The proof that the later tree begins with the earlier one. */
        Consistency: {
            /**
             * Format: int64
             * @description The size of the earlier tree.
             */
            from: number;
            /** @description Its root, 64 hexadecimal digits. */
            fromRoot: string;
            /** @description The proof (RFC 9162, 2.1.4), hexadecimal. */
            proof: string;
            /**
             * Format: int64
             * @description The size of the later one.
             */
            to: number;
            /** @description Its root, 64 hexadecimal digits. */
            toRoot: string;
        };
        /** @description `commandBatches.create`. */
        CreateBatch: {
            /**
             * Format: int32
             * @description How long its commands may be accepted, 60–604800 seconds; 86400 where it is absent.
             */
            expiresInSeconds?: number;
            /** @description Scoped to tenant and caller; 1–200 characters. */
            idempotencyKey: string;
            /** @description Why, for those who approve; 1–1000 characters. */
            reason: string;
            /** @description What it allows, 1–10000 leaves. */
            scope: components["schemas"]["BatchLeaf"][];
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `nodes.createJoinToken`. */
        CreateJoinToken: {
            /** @description The only kinds that the node's certificate allows; absent for all. */
            allowedKinds?: string[];
            /**
             * Format: int32
             * @description How long it is good, 60–86400 seconds; 3600 where it is absent.
             */
            expiresInSeconds?: number;
            /** @description The node that enrols again with it (a new incarnation); absent for a new node. */
            nodeId?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `reservations.create`. */
        CreateReservation: {
            /** @description The UUID of a GPU, or of a MIG instance. */
            gpu: string;
            /** @description Scoped to tenant, caller and node; 1–200 characters. */
            idempotencyKey: string;
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: int32
             * @description A share of it, where it is shared by time; absent for all of it.
             */
            slot?: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `tokens.create`. */
        CreateToken: {
            /**
             * Format: int64
             * @description How long it is good, seconds; absent for ever.
             */
            expiresInSeconds?: number;
            /** @description Grants that the identity gets in addition. Nobody gives what they do not have. */
            grants?: components["schemas"]["Grant"][];
            /** @description The identity's name; it is made if there is none. */
            identity: string;
            /** @description What the token is for, for people. */
            label: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `webhooks.create`. */
        CreateWebhook: {
            /** @description What it is for, for people; at most 200 characters. */
            description?: string;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description Which events, 1 to 50: topics, beginnings of topics that end in `.*`, or `*` for all. */
            topics: string[];
            /** @description Where events are sent: `https://…`, at most 2000 bytes. */
            url: string;
        };
        /** @description `workflows.create`: sets a node apart and runs steps on it, one after the other. */
        CreateWorkflow: {
            /** @description Scoped to tenant and caller; 1–200 characters. */
            idempotencyKey: string;
            /** @description Whether the node stays set apart though all diagnostics pass; false where it is absent. */
            keepQuarantine?: boolean;
            /** @description `node_…` */
            nodeId: string;
            /** @description Why, for those who approve; 1–500 characters. */
            reason: string;
            /** @description In the order wipe, deploy, reboot, diagnostics; 1–16. */
            steps: components["schemas"]["WorkflowStepRequest"][];
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description An event on its way to a webhook. */
        Delivery: {
            /**
             * Format: int32
             * @description How many attempts were begun since it was asked for.
             */
            attempts: number;
            /**
             * Format: date-time
             * @description When the event was found.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was delivered or given up.
             */
            endedAt?: string;
            /** @description `delivery_…`, which is the header `webhook-id` of each attempt. */
            id: string;
            /** @description The first KiB of the last answer, or why there was none. */
            lastAnswer: string;
            /**
             * Format: date-time
             * @description When it was sent last.
             */
            lastAttemptAt?: string;
            /**
             * Format: int32
             * @description The HTTP status of the last answer; absent where there was none.
             */
            lastStatus?: number;
            /**
             * Format: date-time
             * @description When it is to be sent next, where it is pending.
             */
            nextAttemptAt?: string;
            /** @description `pending`, `delivered` or `dead`. */
            state: string;
            /** @description The event's topic; `webhook.test` for a test. */
            topic: string;
        };
        /** @description What every failed call answers: `{"error":{"code","message","details"}}`. */
        ErrorBody: {
            /** @description The error. */
            error: components["schemas"]["ApiError"];
        };
        /** @description An event: the data of one server-sent event, whose name is the topic and whose id is the event's. */
        Event: {
            /**
             * Format: date-time
             * @description When.
             */
            at: string;
            /** @description What happened, by topic: `{commandId, nodeId, kind, state, reason}` and the like. */
            body: unknown;
            /** @description Where to resume after it. */
            id: string;
            /** @description `node_…`, if it is about a node. */
            nodeId?: string;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `node.command.queued`, `command.settled`, `node.command.cancel-requested`, … */
            topic: string;
        };
        /** @description What an identity may do. */
        Grant: {
            /** @description `compute:nodes:read`, `compute:nodes:exec`, …; `compute:*` is all of them. */
            permission: string;
            /** @description `compute-node/<id>`, `kind/<name>`, `tenant/<id>`, or a pattern with `*` at its end: `compute-node/*`, `*`. */
            resource: string;
        };
        /** @description How a replica is. */
        Health: {
            /** @description `ok`. */
            status: string;
        };
        /** @description Settings of the host; what is absent stays as it is. Each needs a boot to take effect. */
        HostSettings: {
            /**
             * Format: int32
             * @description Huge pages of 1 GiB.
             */
            hugePages1g?: number;
            /** @description Whether the IOMMU is on. */
            iommu?: boolean;
            /** @description Processors that the scheduler leaves alone: `2-5,8`. */
            isolatedCpus?: string;
        };
        /** @description Proofs that entries stand in the tree of the first `size`. */
        Inclusion: {
            /** @description The proofs. */
            items: components["schemas"]["InclusionOf"][];
            /** @description Its root, 64 hexadecimal digits. */
            root: string;
            /**
             * Format: int64
             * @description How many entries the tree has.
             */
            size: number;
        };
        /** @description The proof of one entry. */
        InclusionOf: {
            /**
             * Format: int64
             * @description Its place.
             */
            index: number;
            /** @description The hashes beside its way to the root, from the bottom, hexadecimal. */
            proof: string;
        };
        /** @description A virtual machine. */
        Instance: {
            /** @description Its name on the node, 1–64 characters. */
            id: string;
            /** @description UUIDs of the GPUs that are passed through to it. */
            passThrough?: string[];
        };
        /** @description A one-time join token. It is shown once. */
        JoinToken: {
            /**
             * Format: date-time
             * @description Until when.
             */
            expiresAt: string;
            /** @description Where to join, as far as the server knows. */
            gatewayUrl: string;
            /** @description What the node joins with: `bcj_<secret>_<SHA-256 of the authority's certificate>`, so that it knows the right gateway. */
            token: string;
        };
        /** @description A registered kind. */
        Kind: {
            /**
             * Format: date-time
             * @description When it was registered.
             */
            createdAt: string;
            /** @description SHA-256 of its component, hexadecimal. */
            digest: string;
            /** @description Whether `commands.run` accepts it. */
            exposed: boolean;
            /** @description `control`, `provision` or `bulk`. */
            lane: string;
            /** @description The manifest that stands in the component. */
            manifest: unknown;
            /** @description Its name. */
            name: string;
            /** @description The key of the publisher who signed it, hexadecimal; absent for one that is not signed. */
            publisher?: string;
            /** @description The roles of nodes that may run it. */
            roles: string[];
            /** @description `active`, `retired` or `withdrawn`. */
            status: string;
            /**
             * Format: int64
             * @description How long a run may take.
             */
            timeoutMs: number;
            /** @description `destructive`, `retry-safe`, `self-terminating`, `attested`. */
            traits: string[];
            /** @description Its version. */
            version: string;
        };
        /** @description `kinds.get` and `kinds.retire`: by name (its active component) or by digest. */
        KindRef: {
            /** @description SHA-256 of its component, hexadecimal. */
            digest?: string;
            /** @description The kind's name. */
            name?: string;
        };
        /** @description `nodes.label`: sets labels; `null` takes one away. */
        LabelNode: {
            /** @description Names of 1–63 characters with values of at most 63. */
            labels: {
                [key: string]: string | null;
            };
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `commandBatches.list`: newest first. */
        ListBatches: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description Only this state. */
            state?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `bundles.list`: newest first. */
        ListBundles: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description At most as many, 1–50; 20 where it is absent. The store is asked about each.
             */
            limit?: number;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `commands.list`: newest first. A page that a filter narrows may hold fewer than `limit`, even none, and have a `nextCursor`. */
        ListCommands: {
            /** @description Only those of this batch. */
            batchId?: string;
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /** @description Only those of the gateway whose runners lease under this slug. */
            gateway?: string;
            /** @description Only this kind. */
            kind?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description Only this node's; absent for all nodes that the caller may read. */
            nodeId?: string;
            /** @description Only this state. */
            state?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `webhooks.deliveries`: newest first. */
        ListDeliveries: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description The most items of a page: 1 to 200, 100 where it is absent.
             */
            limit?: number;
            /** @description Only those that are `pending`, `delivered` or `dead`. */
            state?: string;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `webhook_…` */
            webhookId: string;
        };
        /** @description `kinds.list`. */
        ListKinds: {
            /** @description Retired and withdrawn ones as well. */
            all?: boolean;
        };
        /** @description `audit.entries`. */
        ListLogEntries: {
            /**
             * Format: int64
             * @description The place to begin at; 0 where it is absent.
             */
            from?: number;
            /**
             * Format: int32
             * @description 1–500; 100 where it is absent.
             */
            limit?: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `nodes.list`. */
        ListNodes: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /** @description Only nodes that have all of these labels. */
            labels?: {
                [key: string]: string;
            };
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `releases.list`: the newest 200. */
        ListReleases: Record<string, never>;
        /** @description `remediations.list`: attempts, newest first. */
        ListRemediations: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description `node_…`; absent for all that the caller may read. */
            nodeId?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `reservations.list`: newest first. */
        ListReservations: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description `node_…` */
            nodeId: string;
            /** @description Only those that are `requested`, `active` or `released`. */
            state?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `rollouts.list`: the newest 200. */
        ListRollouts: {
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `runners.history`: newest first. A page may hold fewer than `limit`, even none, and have a `nextCursor`. */
        ListRunnerCommands: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /** @description Only this gateway's, by its slug. */
            gateway?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `tokens.list`. */
        ListTokens: {
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `webhooks.list`. */
        ListWebhooks: {
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `workflows.list`: newest first. */
        ListWorkflows: {
            /** @description `nextCursor` of the page before. */
            cursor?: string;
            /**
             * Format: int32
             * @description At most as many, 1–200; 100 where it is absent.
             */
            limit?: number;
            /** @description `node_…`; absent for all that the caller may read. */
            nodeId?: string;
            /** @description Only this state. */
            state?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A kind that a node has loaded. */
        LoadedKind: {
            /** @description SHA-256 of its component, hexadecimal. */
            digest: string;
            /** @description Its name. */
            name: string;
            /** @description Its version. */
            version: string;
        };
        /** @description What stands in a stretch of the log. */
        LogEntries: {
            /** @description The entries, in the log's order, without gaps. */
            items: components["schemas"]["LogEntry"][];
            /**
             * Format: int64
             * @description Where to go on; absent at the log's end.
             */
            next?: number;
        };
        /** @description An entry of the transparency log. */
        LogEntry: {
            /** @description The entry: canonical JSON, to the byte. Absent for those of other tenants. */
            body?: string;
            /**
             * Format: int64
             * @description Its place.
             */
            index: number;
            /** @description SHA-256 of a zero byte and the body, 64 hexadecimal digits. */
            leafHash: string;
        };
        /** @description The head of the transparency log. */
        LogHead: {
            /** @description The root of their Merkle tree (RFC 9162), 64 hexadecimal digits. */
            root: string;
            /** @description `{"worker","issuedAtMs","signature"}`; absent where the control plane signs nothing. */
            signature?: unknown;
            /**
             * Format: int64
             * @description How many entries the log has.
             */
            size: number;
        };
        /** @description `audit.receipt`. */
        MakeReceipt: {
            /** @description `cmd_…` */
            commandId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A new token. It is shown once. */
        NewToken: {
            /** @description Names the token without being it: the first 16 hexadecimal digits of its SHA-256. */
            id: string;
            /** @description `bct_…`: what goes into `Authorization: Bearer …`. */
            token: string;
        };
        /** @description A webhook that was made, with its secret. */
        NewWebhook: {
            /** @description `whsec_…`; it is shown this once. */
            secret: string;
            /** @description The webhook. */
            webhook: components["schemas"]["Webhook"];
        };
        /** @description A node. */
        Node: {
            /** @description The daemon's version at its last hello. */
            bcdVersion?: string;
            /** @description What is the matter with it, by its own word. `nodes.list` leaves it out. */
            conditions?: components["schemas"]["Condition"][];
            /** @description Whether a live gateway holds a session with it. */
            connected: boolean;
            /**
             * Format: date-time
             * @description When it was enrolled.
             */
            createdAt: string;
            /** @description `node_…` */
            id: string;
            /**
             * Format: int64
             * @description Which life of the machine this is.
             */
            incarnation: number;
            /** @description The kinds that it had loaded at its last hello. */
            kinds?: components["schemas"]["LoadedKind"][];
            /** @description Its labels. */
            labels: {
                [key: string]: string;
            };
            /**
             * Format: date-time
             * @description When its last session began.
             */
            lastHelloAt?: string;
            /** @description Its name, unique among the tenant's nodes. */
            name: string;
            quarantine?: components["schemas"]["Quarantine"];
            remediationHold?: components["schemas"]["RemediationHold"];
            /** @description `host`, `ramdisk`, `site` or `gateway`. */
            role: string;
            /**
             * Format: int64
             * @description The epoch of its last session; 0 before the first.
             */
            sessionEpoch: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A certificate of a node. */
        NodeCertificate: {
            /** @description The only kinds that it allows; absent for all. */
            allowedKinds?: string[];
            /** @description SHA-256 of the certificate, 64 hexadecimal digits. */
            fingerprint: string;
            /**
             * Format: int64
             * @description The node's life that it is for.
             */
            incarnation: number;
            /** @description Its Ed25519 key, 64 hexadecimal digits; absent for a key of another algorithm, which attests nothing. */
            key?: string;
            /**
             * Format: date-time
             * @description The end of its validity.
             */
            notAfter: string;
            /**
             * Format: date-time
             * @description When it was issued.
             */
            notBefore: string;
            /**
             * Format: date-time
             * @description Since when it is revoked: it opens no session and attests nothing.
             */
            revokedAt?: string;
        };
        /** @description What `nodes.certificates` and `nodes.revokeCertificate` answer. */
        NodeCertificates: {
            /** @description All of the node's certificates, the newest first. */
            items: components["schemas"]["NodeCertificate"][];
        };
        /** @description `nodes.get` and `nodes.delete`. */
        NodeRef: {
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A piece of a stream. */
        OutputPiece: {
            /**
             * Format: int64
             * @description Which run of the command.
             */
            attempt: number;
            /** @description The bytes, base64. */
            bytes: string;
            /**
             * Format: int64
             * @description How many bytes of the stream come before. More than were seen: those between were lost on the way.
             */
            offset: number;
            /** @description `stdout` or `stderr`. */
            stream: string;
        };
        /** @description How much of a command's output was seen. */
        OutputPlace: {
            /**
             * Format: int64
             * @description Which run of the command; 0 for none. Runs that come later have higher numbers.
             * @default 0
             */
            attempt?: number;
            /**
             * Format: int64
             * @description Bytes of its standard error.
             * @default 0
             */
            stderr?: number;
            /**
             * Format: int64
             * @description Bytes of its standard output.
             * @default 0
             */
            stdout?: number;
        };
        /** @description A page of a list. */
        Page_Batch: {
            /** @description The items. */
            items: {
                /** @description The approvals that came. */
                approvals: components["schemas"]["BatchApproval"][];
                /** @description `batch_…` */
                batchId: string;
                /**
                 * Format: date-time
                 * @description When it was rejected or expired.
                 */
                closedAt?: string;
                /**
                 * Format: date-time
                 * @description When it was made.
                 */
                createdAt: string;
                /** @description What approvers sign. */
                document: Record<string, never>;
                /**
                 * Format: date-time
                 * @description Until when its commands may be accepted.
                 */
                expiresAt: string;
                /**
                 * Format: int32
                 * @description How many people's approvals are missing, at least; absent where none are asked for.
                 */
                missing?: number;
                /** @description What it takes, by the control plane's present policy; absent where nobody is asked. */
                policy?: unknown;
                /** @description Why it was asked for. */
                reason: string;
                /** @description Who rejected it. */
                rejectedBy?: string;
                /** @description Why it was rejected. */
                rejection?: string;
                /** @description The name of the identity that asked. */
                requestedBy: string;
                /** @description What it allows; absent in lists. */
                scope?: components["schemas"]["BatchLeaf"][];
                /**
                 * Format: int64
                 * @description How many leaves its scope has.
                 */
                size: number;
                /** @description `open`, `approved`, `rejected` or `expired`. */
                state: string;
                /** @description `tenant_…` */
                tenantId: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Bundle: {
            /** @description The items. */
            items: {
                /** @description The object's key in the store. */
                bundleKey: string;
                /**
                 * Format: int64
                 * @description How large it is; absent unless it is stored.
                 */
                bytes?: number;
                /** @description `cmd_…` */
                commandId: string;
                /** @description The command's state. */
                commandState: string;
                /**
                 * Format: date-time
                 * @description When its command was queued.
                 */
                createdAt: string;
                /** @description The kind's name. */
                kind: string;
                /**
                 * Format: int64
                 * @description The most that it may have.
                 */
                maxBytes: number;
                /** @description `node_…` */
                nodeId: string;
                /** @description SHA-256 as the node told it in its result, 64 hexadecimal digits; absent where it told none. */
                sha256?: string;
                /** @description Whether it is there. */
                state: components["schemas"]["BundleState"];
                /**
                 * Format: date-time
                 * @description Since when it is there; absent unless it is stored.
                 */
                storedAt?: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Command: {
            /** @description The items. */
            items: {
                /** @description Whether the node signed this end and this result, checked now. Never for what the control plane settled by itself. */
                attested?: boolean;
                /** @description SHA-256 of the node's certificate whose key signed it, hexadecimal; absent where it is not attested. */
                attestedBy?: string;
                /** @description Whether it is held until its batch has its approvals. */
                awaitingApproval?: boolean;
                /** @description The batch that it belongs to. */
                batchId?: string;
                /** @description The key of the object in the store that the bundle goes to; absent where it uploads none. */
                bundleKey?: string;
                /**
                 * Format: date-time
                 * @description Since when it is to stop.
                 */
                cancelRequestedAt?: string;
                /**
                 * Format: date-time
                 * @description When it was queued.
                 */
                createdAt: string;
                /** @description Whether the kind destroys data or takes the node out of service. */
                destructive: boolean;
                /**
                 * Format: date-time
                 * @description When it was first sent.
                 */
                dispatchedAt?: string;
                /** @description `cmd_…` */
                id: string;
                /** @description The queue's key: `api:…`, `wf:…`, … */
                idempotencyKey: string;
                /** @description The kind's name. */
                kind: string;
                /** @description SHA-256 of the kind's component, hexadecimal. */
                kindDigest: string;
                /** @description `control`, `provision` or `bulk`. */
                lane: string;
                /** @description `node_…` */
                nodeId: string;
                /**
                 * Format: date-time
                 * @description Until when it may wait to be accepted.
                 */
                notAfter: string;
                /**
                 * Format: date-time
                 * @description When it may be sent at the earliest; absent for at once.
                 */
                notBefore?: string;
                /** @description What was asked. */
                payload: unknown;
                /** @description Why, as a stable code; empty for success and while it is not over. */
                reason: string;
                /**
                 * Format: date-time
                 * @description The node's own time of its result.
                 */
                reportedAt?: string;
                /** @description Who asked for it: the identity's name at that time, or `module/<name>`. */
                requestedBy?: string;
                /** @description The result, or a failure's particulars; absent while there is none. */
                result?: unknown;
                /** @description Whether the kind may be run again after an interruption. */
                retrySafe: boolean;
                /**
                 * Format: int64
                 * @description Its place among the node's commands.
                 */
                seq: number;
                /**
                 * Format: date-time
                 * @description When it was over.
                 */
                settledAt?: string;
                /** @description `pending`, `dispatched`, `acked`, `running`, `succeeded`, `failed`, `rejected`, `expired` or `cancelled`. */
                state: string;
                /** @description Whether it uploads a support bundle. */
                supportBundle?: boolean;
                /** @description `tenant_…` */
                tenantId: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Delivery: {
            /** @description The items. */
            items: {
                /**
                 * Format: int32
                 * @description How many attempts were begun since it was asked for.
                 */
                attempts: number;
                /**
                 * Format: date-time
                 * @description When the event was found.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description When it was delivered or given up.
                 */
                endedAt?: string;
                /** @description `delivery_…`, which is the header `webhook-id` of each attempt. */
                id: string;
                /** @description The first KiB of the last answer, or why there was none. */
                lastAnswer: string;
                /**
                 * Format: date-time
                 * @description When it was sent last.
                 */
                lastAttemptAt?: string;
                /**
                 * Format: int32
                 * @description The HTTP status of the last answer; absent where there was none.
                 */
                lastStatus?: number;
                /**
                 * Format: date-time
                 * @description When it is to be sent next, where it is pending.
                 */
                nextAttemptAt?: string;
                /** @description `pending`, `delivered` or `dead`. */
                state: string;
                /** @description The event's topic; `webhook.test` for a test. */
                topic: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Kind: {
            /** @description The items. */
            items: {
                /**
                 * Format: date-time
                 * @description When it was registered.
                 */
                createdAt: string;
                /** @description SHA-256 of its component, hexadecimal. */
                digest: string;
                /** @description Whether `commands.run` accepts it. */
                exposed: boolean;
                /** @description `control`, `provision` or `bulk`. */
                lane: string;
                /** @description The manifest that stands in the component. */
                manifest: unknown;
                /** @description Its name. */
                name: string;
                /** @description The key of the publisher who signed it, hexadecimal; absent for one that is not signed. */
                publisher?: string;
                /** @description The roles of nodes that may run it. */
                roles: string[];
                /** @description `active`, `retired` or `withdrawn`. */
                status: string;
                /**
                 * Format: int64
                 * @description How long a run may take.
                 */
                timeoutMs: number;
                /** @description `destructive`, `retry-safe`, `self-terminating`, `attested`. */
                traits: string[];
                /** @description Its version. */
                version: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Node: {
            /** @description The items. */
            items: {
                /** @description The daemon's version at its last hello. */
                bcdVersion?: string;
                /** @description What is the matter with it, by its own word. `nodes.list` leaves it out. */
                conditions?: components["schemas"]["Condition"][];
                /** @description Whether a live gateway holds a session with it. */
                connected: boolean;
                /**
                 * Format: date-time
                 * @description When it was enrolled.
                 */
                createdAt: string;
                /** @description `node_…` */
                id: string;
                /**
                 * Format: int64
                 * @description Which life of the machine this is.
                 */
                incarnation: number;
                /** @description The kinds that it had loaded at its last hello. */
                kinds?: components["schemas"]["LoadedKind"][];
                /** @description Its labels. */
                labels: {
                    [key: string]: string;
                };
                /**
                 * Format: date-time
                 * @description When its last session began.
                 */
                lastHelloAt?: string;
                /** @description Its name, unique among the tenant's nodes. */
                name: string;
                quarantine?: components["schemas"]["Quarantine"];
                remediationHold?: components["schemas"]["RemediationHold"];
                /** @description `host`, `ramdisk`, `site` or `gateway`. */
                role: string;
                /**
                 * Format: int64
                 * @description The epoch of its last session; 0 before the first.
                 */
                sessionEpoch: number;
                /** @description `tenant_…` */
                tenantId: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Release: {
            /** @description The items. */
            items: {
                /** @description The Ed25519 key of who vouches for it; absent for one that is not signed. */
                publisher?: string;
                /**
                 * Format: date-time
                 * @description When it was pushed.
                 */
                pushedAt: string;
                /** @description Who pushed it. */
                pushedBy: string;
                /** @description SHA-256 of the file, 64 hexadecimal digits. */
                sha256: string;
                /**
                 * Format: int64
                 * @description The size of the file.
                 */
                sizeBytes: number;
                /** @description What it runs on. */
                target: string;
                /** @description Its version. */
                version: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Reservation: {
            /** @description The items. */
            items: {
                /**
                 * Format: date-time
                 * @description Since when the node holds it.
                 */
                activeAt?: string;
                /** @description What the node signed, exactly as it came: canonical JSON. */
                bound?: string;
                /** @description The node's signature, 128 hexadecimal digits. */
                boundSig?: string;
                /**
                 * Format: date-time
                 * @description When it was asked for.
                 */
                createdAt: string;
                /** @description By whom: an identity, or a module. */
                createdBy: string;
                /**
                 * Format: int64
                 * @description The generation of the node's spec that asks for it.
                 */
                generation: number;
                /** @description The UUID of the GPU, or of the MIG instance. */
                gpu: string;
                /** @description `alloc_…` */
                id: string;
                /** @description `node_…` */
                nodeId: string;
                /**
                 * Format: date-time
                 * @description When it was given back.
                 */
                releasedAt?: string;
                /**
                 * Format: int32
                 * @description A share of it; absent for all of it.
                 */
                slot?: number;
                /** @description `requested`, `active` or `released`. */
                state: string;
                /** @description `tenant_…` */
                tenantId: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Rollout: {
            /** @description The items. */
            items: {
                /** @description Whether nodes may get an older version than theirs. */
                allowDowngrade: boolean;
                /**
                 * Format: date-time
                 * @description When that was.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description When it was over.
                 */
                endedAt?: string;
                /** @description `rollout_…` */
                id: string;
                /**
                 * Format: int32
                 * @description How many may fail before it pauses by itself.
                 */
                maxFailures: number;
                /**
                 * Format: int32
                 * @description How many of its nodes may be under way, or without a session, at once.
                 */
                maxUnavailable: number;
                /** @description Its nodes by wave and name. Absent in a list. */
                nodes?: components["schemas"]["RolloutNode"][];
                /** @description Why it is paused or over: `asked`, `too-many-failures` or `kind-not-registered`; empty otherwise. */
                reason: string;
                /** @description Who asked for it. */
                requestedBy: string;
                /** @description The release's SHA-256. */
                sha256: string;
                /** @description `running`, `paused`, `done` or `cancelled`. */
                state: string;
                /** @description The release's version. */
                version: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_RunnerCommand: {
            /** @description The items. */
            items: {
                /** @description What was asked for. */
                action: string;
                /**
                 * Format: date-time
                 * @description When it was queued.
                 */
                createdAt: string;
                /** @description Why it failed. */
                error?: string;
                /**
                 * Format: int32
                 * @description How it ended.
                 */
                exitCode?: number;
                /**
                 * Format: date-time
                 * @description When it was over.
                 */
                finishedAt?: string;
                /** @description The gateway's slug. */
                gateway: string;
                /** @description `cmd_…` */
                id: string;
                /**
                 * Format: date-time
                 * @description When its last lease began.
                 */
                leasedAt?: string;
                /** @description The runner that had it last: its user in the database, and its name where it has one. */
                leasedBy?: string;
                /** @description `node_…` */
                nodeId: string;
                /** @description Who asked for it. */
                requestedBy?: string;
                /**
                 * Format: date-time
                 * @description When its runner began.
                 */
                startedAt?: string;
                /** @description `pending`, `leased`, `running`, `done` or `failed`. */
                status: string;
                /** @description What it complained about. */
                stderr?: string;
                /** @description What the runner's program said; a cut says so in it. Absent before the end. */
                stdout?: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Token: {
            /** @description The items. */
            items: {
                /**
                 * Format: date-time
                 * @description When it was made.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description Until when it is good.
                 */
                expiresAt?: string;
                /** @description As at its creation. */
                id: string;
                /** @description Whose it is. */
                identity: string;
                /** @description What it is for. */
                label: string;
                /**
                 * Format: date-time
                 * @description Since when it is not.
                 */
                revokedAt?: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Webhook: {
            /** @description The items. */
            items: {
                /**
                 * Format: date-time
                 * @description When it was made.
                 */
                createdAt: string;
                /** @description Who made it. */
                createdBy: string;
                /** @description What it is for. */
                description: string;
                /**
                 * Format: date-time
                 * @description Since when no attempt has succeeded; absent where the last one did.
                 */
                failingSince?: string;
                /** @description `webhook_…` */
                id: string;
                /**
                 * Format: date-time
                 * @description Until when the secret before signs as well; absent where there is none.
                 */
                previousSecretUntil?: string;
                /** @description Why it is disabled: `asked`, `gone` (it answered 410) or `failing` (for five days); empty while enabled. */
                reason: string;
                /** @description `enabled` or `disabled`. */
                state: string;
                /** @description Which events. */
                topics: string[];
                /**
                 * Format: date-time
                 * @description When it was changed last.
                 */
                updatedAt: string;
                /** @description Where events are sent. */
                url: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A page of a list. */
        Page_Workflow: {
            /** @description The items. */
            items: {
                /**
                 * Format: int32
                 * @description Counts up from 1 each time that somebody has it go on.
                 */
                attempt: number;
                /**
                 * Format: date-time
                 * @description Since when somebody wants it called off.
                 */
                cancelRequestedAt?: string;
                /** @description Who that was. */
                cancelRequestedBy?: string;
                /**
                 * Format: date-time
                 * @description When it began.
                 */
                createdAt: string;
                /**
                 * Format: date-time
                 * @description When it ended.
                 */
                endedAt?: string;
                /** @description `wf_…` */
                id: string;
                /** @description Whether the node stays set apart though all diagnostics pass. */
                keepQuarantine: boolean;
                /** @description `node_…` */
                nodeId: string;
                /** @description Why it was begun. */
                reason: string;
                /** @description Who began it. */
                requestedBy: string;
                /** @description `running`, `succeeded`, `failed`, `ambiguous` or `cancelled`. */
                state: string;
                /** @description Its steps, in order. */
                steps: components["schemas"]["WorkflowStep"][];
                /** @description `tenant_…` */
                tenantId: string;
                /** @description The step that ended it, and why; empty before, and for success. */
                why: string;
            }[];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description How far a run is. */
        Progress: {
            /** @description The command. */
            commandId: string;
            /**
             * Format: int64
             * @description Steps done, in `unit`.
             */
            done: number;
            /** @description For people. */
            message: string;
            /** @description Its node. */
            nodeId: string;
            /**
             * Format: int64
             * @description Steps in all, if known.
             */
            total?: number;
            /** @description What is counted. */
            unit: string;
        };
        /** @description `audit.consistency`. */
        ProveConsistency: {
            /**
             * Format: int64
             * @description The size of the earlier tree.
             */
            from: number;
            /** @description `tenant_…` */
            tenantId: string;
            /**
             * Format: int64
             * @description That of the later one; that of the newest head where it is absent.
             */
            to?: number;
        };
        /** @description `audit.inclusion`: of a command's entries, or of the entry at one place. */
        ProveInclusion: {
            /** @description `cmd_…`; either this or `index`. */
            commandId?: string;
            /**
             * Format: int64
             * @description The place; either this or `commandId`.
             */
            index?: number;
            /**
             * Format: int64
             * @description The tree of the first so many entries; that of the newest head where it is absent.
             */
            size?: number;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description That a node is set apart. */
        Quarantine: {
            /** @description Who did it. */
            by: string;
            /** @description Why. */
            reason: string;
            /**
             * Format: date-time
             * @description Since when.
             */
            since: string;
            /** @description The workflow that did it, `wf_…`; absent where a person did. */
            workflowId?: string;
        };
        /** @description `nodes.quarantine`. */
        QuarantineNode: {
            /** @description `node_…` */
            nodeId: string;
            /** @description Why, 1–500 characters. */
            reason: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description Which output. */
        ReadOutput: {
            /** @description What was seen: `next` of the last answer. From the beginning by default. */
            after?: components["schemas"]["OutputPlace"];
            /** @description `cmd_…` */
            commandId: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
            /**
             * Format: int32
             * @description How long to wait for something new while the command goes on, 0 to 30 seconds.
             */
            waitSeconds?: number;
        };
        /** @description `webhooks.redeliver`: one of `deliveryId` and `since`. */
        Redeliver: {
            /** @description `delivery_…`: this one, whatever became of it. */
            deliveryId?: string;
            /**
             * Format: date-time
             * @description All that were given up and whose events were found since then.
             */
            since?: string;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `webhook_…` */
            webhookId: string;
        };
        /** @description How many are sent again. */
        Redelivered: {
            /**
             * Format: int64
             * @description How many.
             */
            count: number;
        };
        /** @description `commandBatches.reject`. */
        RejectBatch: {
            /** @description `batch_…` */
            batchId: string;
            /** @description Why, 1–1000 characters. */
            reason: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A binary of the daemon. */
        Release: {
            /** @description The Ed25519 key of who vouches for it; absent for one that is not signed. */
            publisher?: string;
            /**
             * Format: date-time
             * @description When it was pushed.
             */
            pushedAt: string;
            /** @description Who pushed it. */
            pushedBy: string;
            /** @description SHA-256 of the file, 64 hexadecimal digits. */
            sha256: string;
            /**
             * Format: int64
             * @description The size of the file.
             */
            sizeBytes: number;
            /** @description What it runs on. */
            target: string;
            /** @description Its version. */
            version: string;
        };
        /** @description Names a release. */
        ReleaseRef: {
            /** @description SHA-256 of the file, 64 hexadecimal digits in lower case. */
            sha256: string;
        };
        /** @description An attempt to mend a node. */
        Remediation: {
            /** @description `RowRemapPending` or `RebootRequired`. */
            ailment: string;
            /**
             * Format: int32
             * @description Counts up from 1 for each ailment of a node.
             */
            attempt: number;
            /** @description `batch_…` */
            batchId: string;
            /**
             * Format: date-time
             * @description When somebody let the node go on after an ambiguous outcome.
             */
            clearedAt?: string;
            /** @description Who that was. */
            clearedBy?: string;
            /** @description `cmd_…` */
            commandId: string;
            /**
             * Format: date-time
             * @description When it ended.
             */
            endedAt?: string;
            /** @description UUIDs of the GPUs; empty for the node itself. */
            gpus: string[];
            /** @description `node_…` */
            nodeId: string;
            /** @description `pending`, `succeeded`, `failed`, `ambiguous` or `withdrawn`. */
            outcome: string;
            /** @description Why it ended so, as a stable code; empty before, and for success. */
            reason: string;
            /**
             * Format: date-time
             * @description When it began.
             */
            startedAt: string;
        };
        /** @description Why a node that has something is left alone. */
        RemediationHold: {
            /** @description `RowRemapPending` or `RebootRequired`. */
            ailment: string;
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: date-time
             * @description Since when for this reason.
             */
            since: string;
            /**
             * @description `protected`, `ambiguous`, `out-of-attempts`, `breaker`, `disconnected`, `in-use`, `pool-away`, `kind-not-registered` or
             *     `kind-not-allowed`.
             */
            why: string;
        };
        /** @description A page of attempts, and what is left alone now. */
        Remediations: {
            /**
             * @description Nodes that have something and are left alone for now, those since the longest time first; at most 1 000. On the first page
             *     alone.
             */
            holds?: components["schemas"]["RemediationHold"][];
            /** @description The attempts. */
            items: components["schemas"]["Remediation"][];
            /** @description For the next page; absent on the last one. */
            nextCursor?: string;
        };
        /** @description A GPU that is reserved. */
        Reservation: {
            /**
             * Format: date-time
             * @description Since when the node holds it.
             */
            activeAt?: string;
            /** @description What the node signed, exactly as it came: canonical JSON. */
            bound?: string;
            /** @description The node's signature, 128 hexadecimal digits. */
            boundSig?: string;
            /**
             * Format: date-time
             * @description When it was asked for.
             */
            createdAt: string;
            /** @description By whom: an identity, or a module. */
            createdBy: string;
            /**
             * Format: int64
             * @description The generation of the node's spec that asks for it.
             */
            generation: number;
            /** @description The UUID of the GPU, or of the MIG instance. */
            gpu: string;
            /** @description `alloc_…` */
            id: string;
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: date-time
             * @description When it was given back.
             */
            releasedAt?: string;
            /**
             * Format: int32
             * @description A share of it; absent for all of it.
             */
            slot?: number;
            /** @description `requested`, `active` or `released`. */
            state: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `reservations.get` and `reservations.release`. */
        ReservationRef: {
            /** @description `node_…` */
            nodeId: string;
            /** @description `alloc_…` */
            reservationId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `nodes.revokeCertificate`. */
        RevokeCertificate: {
            /** @description SHA-256 of the certificate, 64 hexadecimal digits; absent for all that the node has. */
            fingerprint?: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A release on its way to nodes. */
        Rollout: {
            /** @description Whether nodes may get an older version than theirs. */
            allowDowngrade: boolean;
            /**
             * Format: date-time
             * @description When that was.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it was over.
             */
            endedAt?: string;
            /** @description `rollout_…` */
            id: string;
            /**
             * Format: int32
             * @description How many may fail before it pauses by itself.
             */
            maxFailures: number;
            /**
             * Format: int32
             * @description How many of its nodes may be under way, or without a session, at once.
             */
            maxUnavailable: number;
            /** @description Its nodes by wave and name. Absent in a list. */
            nodes?: components["schemas"]["RolloutNode"][];
            /** @description Why it is paused or over: `asked`, `too-many-failures` or `kind-not-registered`; empty otherwise. */
            reason: string;
            /** @description Who asked for it. */
            requestedBy: string;
            /** @description The release's SHA-256. */
            sha256: string;
            /** @description `running`, `paused`, `done` or `cancelled`. */
            state: string;
            /** @description The release's version. */
            version: string;
        };
        /** @description A node of a rollout. */
        RolloutNode: {
            /** @description `cmd_…`, once there is one. */
            commandId?: string;
            /** @description Whether it has a session. */
            connected: boolean;
            /** @description Its name. */
            name: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description Why it ended so, as a stable code; empty before, and for success. */
            reason: string;
            /** @description `waiting`, `pending`, `succeeded`, `failed` or `skipped`. */
            step: string;
            /**
             * Format: int32
             * @description Its wave, from 0.
             */
            wave: number;
        };
        /** @description Names a rollout. */
        RolloutRef: {
            /** @description `rollout_…` */
            rolloutId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A webhook's new secret. */
        RotatedWebhookSecret: {
            /**
             * Format: date-time
             * @description Until when the secret before signs as well; absent where it counts no more.
             */
            previousSecretUntil?: string;
            /** @description `whsec_…`; it is shown this once. */
            secret: string;
        };
        /** @description `webhooks.rotateSecret`. */
        RotateWebhookSecret: {
            /**
             * Format: int64
             * @description How long the secret before signs as well: 0 to 604800 seconds, a day where it is absent. With 0 it counts no more.
             */
            overlapSeconds?: number;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `webhook_…` */
            webhookId: string;
        };
        /** @description `commands.run`. */
        RunCommand: {
            /** @description The destructive batch that it belongs to. */
            batchId?: string;
            /** @description Scoped to tenant and caller; 1–200 characters. */
            idempotencyKey: string;
            /** @description The kind's name. */
            kind: string;
            /**
             * Format: int64
             * @description The generation of the node's spec that it presupposes: the node applies that one, or a newer one, before it runs this.
             */
            minGeneration?: number;
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: int32
             * @description How long it may wait for the node, 10–3600 seconds; 600 where it is absent.
             */
            notAfterSeconds?: number;
            /** @description The kind's payload; `{}` where it is absent. */
            payload?: unknown;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A command of a gateway whose runners lease, as they see it. */
        RunnerCommand: {
            /** @description What was asked for. */
            action: string;
            /**
             * Format: date-time
             * @description When it was queued.
             */
            createdAt: string;
            /** @description Why it failed. */
            error?: string;
            /**
             * Format: int32
             * @description How it ended.
             */
            exitCode?: number;
            /**
             * Format: date-time
             * @description When it was over.
             */
            finishedAt?: string;
            /** @description The gateway's slug. */
            gateway: string;
            /** @description `cmd_…` */
            id: string;
            /**
             * Format: date-time
             * @description When its last lease began.
             */
            leasedAt?: string;
            /** @description The runner that had it last: its user in the database, and its name where it has one. */
            leasedBy?: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description Who asked for it. */
            requestedBy?: string;
            /**
             * Format: date-time
             * @description When its runner began.
             */
            startedAt?: string;
            /** @description `pending`, `leased`, `running`, `done` or `failed`. */
            status: string;
            /** @description What it complained about. */
            stderr?: string;
            /** @description What the runner's program said; a cut says so in it. Absent before the end. */
            stdout?: string;
        };
        /** @description A gateway whose commands runners lease. */
        RunnerGateway: {
            /** @description What its runners have now, the oldest first. */
            leases: components["schemas"]["RunnerLease"][];
            /** @description The users of the database that act for it. */
            logins: string[];
            /** @description `node_…` */
            nodeId: string;
            /**
             * Format: date-time
             * @description When the one of them was queued that waits longest.
             */
            oldestPendingAt?: string;
            /**
             * Format: int64
             * @description How many of its commands wait for a runner.
             */
            pending: number;
            /** @description Under which name; absent where sessions serve it. */
            slug?: string;
        };
        /** @description A lease that counts. */
        RunnerLease: {
            /** @description `cmd_…` */
            commandId: string;
            /**
             * Format: int64
             * @description How many leases of the command ran out before.
             */
            earlierLeases: number;
            /**
             * Format: date-time
             * @description When the sweeper takes the command back, unless the runner renews the lease.
             */
            expiresAt: string;
            /**
             * Format: date-time
             * @description When it began.
             */
            leasedAt: string;
            /** @description The runner's user in the database, and its name where it has one. */
            leasedBy: string;
            /**
             * Format: date-time
             * @description When the runner started the command; absent before.
             */
            startedAt?: string;
        };
        /** @description `runners.allow` and `runners.disallow`. */
        RunnerLogin: {
            /** @description A user of the database, a member of `better_compute_runner`. */
            login: string;
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `runners.set`. */
        SetRunner: {
            /** @description `node_…`, of the role `gateway`. */
            nodeId: string;
            /** @description The name under which runners lease its commands, unique over all tenants; absent to give it back to sessions. */
            slug?: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `nodes.setSpec`: what a node should be, all but its holds. */
        SetSpec: {
            /**
             * Format: int64
             * @description The generation that this one follows, 0 for the first: another one is a `CONFLICT`. Absent for any.
             */
            expectedGeneration?: number;
            /** @description Settings of the host. */
            host?: components["schemas"]["HostSettings"];
            /** @description Virtual machines, all of them. */
            instances?: components["schemas"]["Instance"][];
            /** @description `node_…` */
            nodeId: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `audit.head`. */
        ShowLogHead: {
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description A worker key that signed something. */
        SignedBy: {
            /**
             * Format: int64
             * @description When it signed, milliseconds since the Unix epoch.
             */
            issuedAtMs: number;
            /** @description The worker key, 64 hexadecimal digits. */
            key: string;
            /** @description The root that certified it. */
            root: string;
        };
        /** @description The newest generation of a node's spec. */
        Spec: {
            /**
             * Format: int64
             * @description The generation that the node has applied; 0 for none.
             */
            appliedGeneration: number;
            /**
             * Format: date-time
             * @description When it was made.
             */
            createdAt?: string;
            /** @description By whom: an identity, or a module. */
            createdBy?: string;
            /** @description The document as it is stored: `generation`, `holds`, `instances`, `host`. Absent before the first. */
            document?: unknown;
            /**
             * Format: int64
             * @description The generation; 0 before the first.
             */
            generation: number;
            /** @description `node_…` */
            nodeId: string;
            signedBy?: components["schemas"]["SignedBy"];
        };
        /** @description `rollouts.start`: brings a release to the nodes that have all of these labels now. */
        StartRollout: {
            /** @description Whether nodes may get an older version than theirs. */
            allowDowngrade?: boolean;
            /** @description The same key again is the same rollout. 1–200 characters. */
            idempotencyKey: string;
            /** @description Labels that the nodes have; none for all nodes. */
            labels?: {
                [key: string]: string;
            };
            /**
             * Format: int32
             * @description How many may fail before it pauses by itself; 0 where it is absent: the first failure pauses it.
             */
            maxFailures?: number;
            /**
             * Format: int32
             * @description How many of them may be under way, or without a session, at once; 1 where it is absent.
             */
            maxUnavailable?: number;
            /** @description The release's SHA-256, 64 hexadecimal digits in lower case. */
            sha256: string;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description Where waves end, in percent of the nodes, rising, below 100; the last wave has the rest. None for one wave. */
            waves?: number[];
        };
        /** @description A token, less the token. */
        Token: {
            /**
             * Format: date-time
             * @description When it was made.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description Until when it is good.
             */
            expiresAt?: string;
            /** @description As at its creation. */
            id: string;
            /** @description Whose it is. */
            identity: string;
            /** @description What it is for. */
            label: string;
            /**
             * Format: date-time
             * @description Since when it is not.
             */
            revokedAt?: string;
        };
        /** @description `tokens.revoke`. */
        TokenRef: {
            /** @description As in the list. */
            id: string;
            /** @description `tenant_…` */
            tenantId: string;
        };
        /** @description `webhooks.update`: what is absent stays as it is. */
        UpdateWebhook: {
            /** @description What it is for. */
            description?: string;
            /** @description Whether anything is sent. One that is enabled again gets what happens from then on, and what was pending. */
            enabled?: boolean;
            /** @description `tenant_…` */
            tenantId: string;
            /** @description Which events from now on. */
            topics?: string[];
            /** @description Where events are sent from now on. */
            url?: string;
            /** @description `webhook_…` */
            webhookId: string;
        };
        /** @description A webhook. */
        Webhook: {
            /**
             * Format: date-time
             * @description When it was made.
             */
            createdAt: string;
            /** @description Who made it. */
            createdBy: string;
            /** @description What it is for. */
            description: string;
            /**
             * Format: date-time
             * @description Since when no attempt has succeeded; absent where the last one did.
             */
            failingSince?: string;
            /** @description `webhook_…` */
            id: string;
            /**
             * Format: date-time
             * @description Until when the secret before signs as well; absent where there is none.
             */
            previousSecretUntil?: string;
            /** @description Why it is disabled: `asked`, `gone` (it answered 410) or `failing` (for five days); empty while enabled. */
            reason: string;
            /** @description `enabled` or `disabled`. */
            state: string;
            /** @description Which events. */
            topics: string[];
            /**
             * Format: date-time
             * @description When it was changed last.
             */
            updatedAt: string;
            /** @description Where events are sent. */
            url: string;
        };
        /** @description Names a webhook. */
        WebhookRef: {
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `webhook_…` */
            webhookId: string;
        };
        /** @description `tokens.whoami` takes nothing. */
        WhoAmI: Record<string, never>;
        /** @description A workflow, and where it stands. */
        Workflow: {
            /**
             * Format: int32
             * @description Counts up from 1 each time that somebody has it go on.
             */
            attempt: number;
            /**
             * Format: date-time
             * @description Since when somebody wants it called off.
             */
            cancelRequestedAt?: string;
            /** @description Who that was. */
            cancelRequestedBy?: string;
            /**
             * Format: date-time
             * @description When it began.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description When it ended.
             */
            endedAt?: string;
            /** @description `wf_…` */
            id: string;
            /** @description Whether the node stays set apart though all diagnostics pass. */
            keepQuarantine: boolean;
            /** @description `node_…` */
            nodeId: string;
            /** @description Why it was begun. */
            reason: string;
            /** @description Who began it. */
            requestedBy: string;
            /** @description `running`, `succeeded`, `failed`, `ambiguous` or `cancelled`. */
            state: string;
            /** @description Its steps, in order. */
            steps: components["schemas"]["WorkflowStep"][];
            /** @description `tenant_…` */
            tenantId: string;
            /** @description The step that ended it, and why; empty before, and for success. */
            why: string;
        };
        /** @description `workflows.get`, `workflows.cancel` and `workflows.retry`. */
        WorkflowRef: {
            /** @description `tenant_…` */
            tenantId: string;
            /** @description `wf_…` */
            workflowId: string;
        };
        /** @description A step, and where it stands. */
        WorkflowStep: {
            /** @description Its batch, `batch_…`. */
            batchId?: string;
            /**
             * Format: date-time
             * @description When its newest command was queued.
             */
            beganAt?: string;
            /** @description Its newest command, `cmd_…`. */
            commandId?: string;
            /** @description Where that stands. */
            commandState?: string;
            /**
             * Format: int32
             * @description How long its command may wait, seconds.
             */
            deadlineSeconds: number;
            /** @description Whether it destroys data or takes the node out of service. */
            destructive: boolean;
            /**
             * Format: date-time
             * @description When that one's end was taken note of.
             */
            endedAt?: string;
            /** @description The kind. */
            kind: string;
            /** @description SHA-256 of its component, hexadecimal: the one that validated the payload runs. */
            kindDigest: string;
            /**
             * Format: int32
             * @description How many people's approvals are missing, at least. `workflows.list` leaves it out.
             */
            missingApprovals?: number;
            /** @description What it is given. */
            payload: Record<string, never>;
            /** @description Why it stands so, as a stable code; empty where there is nothing to say. */
            reason: string;
            /** @description `waiting`, `open`, `succeeded`, `failed`, `ambiguous` or `cancelled`. */
            state: string;
            /** @description `wipe`, `deploy`, `reboot`, or the diagnostic's kind. */
            step: string;
            /**
             * Format: int32
             * @description How often it was begun since somebody last had it begin.
             */
            tries: number;
            /** @description What an open step waits for: `approvals`, `node` or `result`. Of a step that is to begin: `other-commands`. */
            waitsFor?: string;
        };
        /** @description A step to run. */
        WorkflowStepRequest: {
            /**
             * Format: int32
             * @description How long its command may wait to be accepted, approvals included, 60–604800 seconds; where it is absent 3600, and 86400 where
             *     people have to approve.
             */
            deadlineSeconds?: number;
            /** @description `metal.disk.wipe`, `metal.image.deploy`, `node.reboot`, or a diagnostic such as `diag.nvml`. */
            kind: string;
            /** @description As the kind takes it; `{}` where it is absent. */
            payload?: Record<string, never>;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    healthz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It can */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
        };
    };
    "audit.consistency": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProveConsistency"];
            };
        };
        responses: {
            /** @description The proof */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Consistency"];
                };
            };
        };
    };
    "audit.entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListLogEntries"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogEntries"];
                };
            };
        };
    };
    "audit.head": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ShowLogHead"];
            };
        };
        responses: {
            /** @description The newest head */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogHead"];
                };
            };
        };
    };
    "audit.inclusion": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProveInclusion"];
            };
        };
        responses: {
            /** @description The proofs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Inclusion"];
                };
            };
        };
    };
    "audit.receipt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MakeReceipt"];
            };
        };
        responses: {
            /** @description The receipt */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    "bundles.download": {
        parameters: {
            query: {
                /** @description `cmd_…`, the command that made it */
                commandId: string;
                /** @description `node_…` */
                nodeId: string;
                /** @description `tenant_…` */
                tenantId: string;
            };
            header?: {
                /** @description `bytes=FIRST-`, `bytes=FIRST-LAST` or `bytes=-COUNT` */
                Range?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bundle */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/zstd": number[];
                };
            };
            /** @description The range of it */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/zstd": number[];
                };
            };
        };
    };
    "bundles.files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BundleRef"];
            };
        };
        responses: {
            /** @description Its files */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BundleFiles"];
                };
            };
        };
    };
    "bundles.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListBundles"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Bundle"];
                };
            };
        };
    };
    "bundles.read": {
        parameters: {
            query: {
                /** @description `cmd_…`, the command that made it */
                commandId: string;
                /** @description `node_…` */
                nodeId: string;
                /** @description The file, as `bundles.files` names it; 1–4096 bytes */
                path: string;
                /** @description `tenant_…` */
                tenantId: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
        };
    };
    "commandBatches.approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ApproveBatch"];
            };
        };
        responses: {
            /** @description The batch */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    "commandBatches.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateBatch"];
            };
        };
        responses: {
            /** @description The batch */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    "commandBatches.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BatchRef"];
            };
        };
        responses: {
            /** @description The batch */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    "commandBatches.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListBatches"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Batch"];
                };
            };
        };
    };
    "commandBatches.reject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RejectBatch"];
            };
        };
        responses: {
            /** @description The batch */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
        };
    };
    "commands.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CommandRef"];
            };
        };
        responses: {
            /** @description The command */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Command"];
                };
            };
        };
    };
    "commands.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CommandRef"];
            };
        };
        responses: {
            /** @description The command */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Command"];
                };
            };
        };
    };
    "commands.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListCommands"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Command"];
                };
            };
        };
    };
    "commands.output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReadOutput"];
            };
        };
        responses: {
            /** @description What follows */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CommandOutput"];
                };
            };
        };
    };
    "commands.run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunCommand"];
            };
        };
        responses: {
            /** @description The command */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Command"];
                };
            };
        };
    };
    "events.watch": {
        parameters: {
            query: {
                /** @description Only what came after this event's id; `0` from the beginning; absent from now on. `Last-Event-ID` does the same. */
                after?: string;
                /** @description Only this command's, and its progress (`command.progress`, which is not durable and has no id). */
                commandId?: string;
                /** @description Only this node's. */
                nodeId?: string;
                /** @description `tenant_…` */
                tenantId: string;
            };
            header?: {
                /** @description As `after`, and before it */
                "Last-Event-ID"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The stream */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": components["schemas"]["Event"];
                };
            };
        };
    };
    "kinds.activate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ActivateKind"];
            };
        };
        responses: {
            /** @description The kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kind"];
                };
            };
        };
    };
    "kinds.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KindRef"];
            };
        };
        responses: {
            /** @description The kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kind"];
                };
            };
        };
    };
    "kinds.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListKinds"];
            };
        };
        responses: {
            /** @description All of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Kind"];
                };
            };
        };
    };
    "kinds.register": {
        parameters: {
            query?: {
                /** @description As in `kinds.activate`. */
                acceptWider?: boolean;
                /** @description Make it the one that takes new commands. */
                activate?: boolean;
                /** @description As in `kinds.activate`. */
                batchId?: string;
                /** @description Let `commands.run` accept it. Absent: as the active version; the four built-in names always are, `gpu.reset` never. */
                exposed?: boolean;
                /** @description The publisher's key, 64 hexadecimal digits; goes with `signature`. */
                publisher?: string;
                /** @description The publisher's signature of the component's SHA-256, 128 hexadecimal digits. */
                signature?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The component */
        requestBody: {
            content: {
                "application/wasm": number[];
            };
        };
        responses: {
            /** @description The kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kind"];
                };
            };
        };
    };
    "kinds.retire": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KindRef"];
            };
        };
        responses: {
            /** @description The kind */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kind"];
                };
            };
        };
    };
    "nodes.certificates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description Its certificates */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeCertificates"];
                };
            };
        };
    };
    "nodes.createJoinToken": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateJoinToken"];
            };
        };
        responses: {
            /** @description The token */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JoinToken"];
                };
            };
        };
    };
    "nodes.delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description The node, as it was */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
        };
    };
    "nodes.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description The node */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
        };
    };
    "nodes.getSpec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description The newest spec */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Spec"];
                };
            };
        };
    };
    "nodes.label": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LabelNode"];
            };
        };
        responses: {
            /** @description The node */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
        };
    };
    "nodes.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListNodes"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Node"];
                };
            };
        };
    };
    "nodes.quarantine": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["QuarantineNode"];
            };
        };
        responses: {
            /** @description The node */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
        };
    };
    "nodes.release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description The node */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Node"];
                };
            };
        };
    };
    "nodes.revokeCertificate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RevokeCertificate"];
            };
        };
        responses: {
            /** @description The node's certificates */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeCertificates"];
                };
            };
        };
    };
    "nodes.setSpec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetSpec"];
            };
        };
        responses: {
            /** @description The new spec */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Spec"];
                };
            };
        };
    };
    openapi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OpenAPI 3.1 */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    "releases.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReleaseRef"];
            };
        };
        responses: {
            /** @description The release */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Release"];
                };
            };
        };
    };
    "releases.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListReleases"];
            };
        };
        responses: {
            /** @description The releases */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Release"];
                };
            };
        };
    };
    "releases.push": {
        parameters: {
            query: {
                /** @description The Ed25519 key of who vouches for it, 64 hexadecimal digits. */
                publisher?: string;
                /** @description SHA-256 of the file, 64 hexadecimal digits in lower case. */
                sha256: string;
                /** @description The signature, 128 hexadecimal digits. */
                signature?: string;
                /** @description What it runs on: `x86_64-unknown-linux-gnu`, for example. */
                target: string;
                /** @description The version that the binary says it is. */
                version: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The file */
        requestBody: {
            content: {
                "application/octet-stream": number[];
            };
        };
        responses: {
            /** @description The release */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Release"];
                };
            };
        };
    };
    "remediations.clear": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ClearRemediations"];
            };
        };
        responses: {
            /** @description How many attempts were cleared */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Cleared"];
                };
            };
        };
    };
    "remediations.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListRemediations"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Remediations"];
                };
            };
        };
    };
    "reservations.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateReservation"];
            };
        };
        responses: {
            /** @description The reservation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
        };
    };
    "reservations.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReservationRef"];
            };
        };
        responses: {
            /** @description The reservation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
        };
    };
    "reservations.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListReservations"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Reservation"];
                };
            };
        };
    };
    "reservations.release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ReservationRef"];
            };
        };
        responses: {
            /** @description The reservation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
        };
    };
    "rollouts.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RolloutRef"];
            };
        };
        responses: {
            /** @description The rollout */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rollout"];
                };
            };
        };
    };
    "rollouts.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RolloutRef"];
            };
        };
        responses: {
            /** @description The rollout */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rollout"];
                };
            };
        };
    };
    "rollouts.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListRollouts"];
            };
        };
        responses: {
            /** @description The rollouts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Rollout"];
                };
            };
        };
    };
    "rollouts.pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RolloutRef"];
            };
        };
        responses: {
            /** @description The rollout */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rollout"];
                };
            };
        };
    };
    "rollouts.resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RolloutRef"];
            };
        };
        responses: {
            /** @description The rollout */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rollout"];
                };
            };
        };
    };
    "rollouts.start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StartRollout"];
            };
        };
        responses: {
            /** @description The rollout */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rollout"];
                };
            };
        };
    };
    "runners.allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunnerLogin"];
            };
        };
        responses: {
            /** @description The gateway */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunnerGateway"];
                };
            };
        };
    };
    "runners.disallow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunnerLogin"];
            };
        };
        responses: {
            /** @description The gateway */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunnerGateway"];
                };
            };
        };
    };
    "runners.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeRef"];
            };
        };
        responses: {
            /** @description The gateway */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunnerGateway"];
                };
            };
        };
    };
    "runners.history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListRunnerCommands"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_RunnerCommand"];
                };
            };
        };
    };
    "runners.set": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SetRunner"];
            };
        };
        responses: {
            /** @description The gateway */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunnerGateway"];
                };
            };
        };
    };
    "tokens.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateToken"];
            };
        };
        responses: {
            /** @description The token */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NewToken"];
                };
            };
        };
    };
    "tokens.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListTokens"];
            };
        };
        responses: {
            /** @description All of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Token"];
                };
            };
        };
    };
    "tokens.revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TokenRef"];
            };
        };
        responses: {
            /** @description The token */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"];
                };
            };
        };
    };
    "tokens.whoami": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WhoAmI"];
            };
        };
        responses: {
            /** @description The caller */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Caller"];
                };
            };
        };
    };
    "webhooks.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateWebhook"];
            };
        };
        responses: {
            /** @description The webhook and its secret */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NewWebhook"];
                };
            };
        };
    };
    "webhooks.delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookRef"];
            };
        };
        responses: {
            /** @description The webhook as it was */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
        };
    };
    "webhooks.deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListDeliveries"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Delivery"];
                };
            };
        };
    };
    "webhooks.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookRef"];
            };
        };
        responses: {
            /** @description The webhook */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
        };
    };
    "webhooks.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListWebhooks"];
            };
        };
        responses: {
            /** @description All of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Webhook"];
                };
            };
        };
    };
    "webhooks.redeliver": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Redeliver"];
            };
        };
        responses: {
            /** @description How many */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Redelivered"];
                };
            };
        };
    };
    "webhooks.rotateSecret": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RotateWebhookSecret"];
            };
        };
        responses: {
            /** @description The secret */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RotatedWebhookSecret"];
                };
            };
        };
    };
    "webhooks.test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookRef"];
            };
        };
        responses: {
            /** @description The delivery, not yet sent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"];
                };
            };
        };
    };
    "webhooks.update": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["UpdateWebhook"];
            };
        };
        responses: {
            /** @description The webhook */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Webhook"];
                };
            };
        };
    };
    "workflows.cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WorkflowRef"];
            };
        };
        responses: {
            /** @description The workflow */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workflow"];
                };
            };
        };
    };
    "workflows.create": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateWorkflow"];
            };
        };
        responses: {
            /** @description The workflow */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workflow"];
                };
            };
        };
    };
    "workflows.get": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WorkflowRef"];
            };
        };
        responses: {
            /** @description The workflow */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workflow"];
                };
            };
        };
    };
    "workflows.list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ListWorkflows"];
            };
        };
        responses: {
            /** @description A page of them */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_Workflow"];
                };
            };
        };
    };
    "workflows.retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WorkflowRef"];
            };
        };
        responses: {
            /** @description The workflow */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workflow"];
                };
            };
        };
    };
}
