-- a consumer's store of version 2, written by the release before producers had a user
BEGIN TRANSACTION;
CREATE TABLE oncewire_store_deliveries (
        store TEXT NOT NULL, link TEXT NOT NULL, tag BYTEA NOT NULL, place BIGINT NOT NULL, outcome TEXT,
        PRIMARY KEY (store, link, tag));
CREATE TABLE oncewire_store_fences (
        store TEXT PRIMARY KEY, version INTEGER NOT NULL, fence BIGINT NOT NULL);
INSERT INTO "oncewire_store_fences" VALUES('billing',2,1);
CREATE TABLE oncewire_store_inputs (
        store TEXT NOT NULL, position BIGINT NOT NULL, source TEXT NOT NULL, received_at DOUBLE PRECISION NOT NULL,
        payload BYTEA NOT NULL, PRIMARY KEY (store, position));
INSERT INTO "oncewire_store_inputs" VALUES('billing',3,'orders',1.79564874546659159664e+09,X'005372C16D08A314782D6F70742D746F7069632D70726F6475636572A10973686F704031303030A30F782D6F70742D746F7069632D7365715303A311782D6F70742D746F7069632D666C6F6F725301A317782D6F70742D746F7069632D7472616E73616374696F6EA108636F6E74696E7565005375A00133');
INSERT INTO "oncewire_store_inputs" VALUES('billing',4,'orders',1.79564874546659159664e+09,X'005372C16D08A314782D6F70742D746F7069632D70726F6475636572A10973686F704031303030A30F782D6F70742D746F7069632D7365715304A311782D6F70742D746F7069632D666C6F6F725301A317782D6F70742D746F7069632D7472616E73616374696F6EA108636F6E74696E7565005375A00134');
CREATE TABLE oncewire_store_intents (
        store TEXT NOT NULL, number BIGINT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL,
        born_ms BIGINT NOT NULL, sequence BIGINT NOT NULL, flag TEXT NOT NULL, begins BIGINT NOT NULL,
        floor BIGINT NOT NULL, payload BYTEA, PRIMARY KEY (store, number));
CREATE TABLE oncewire_store_links (
        store TEXT NOT NULL, link TEXT NOT NULL, incarnation BIGINT NOT NULL, PRIMARY KEY (store, link));
CREATE TABLE oncewire_store_outputs (
        store TEXT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL, born_ms BIGINT NOT NULL,
        begins BIGINT NOT NULL, PRIMARY KEY (store, producer, born_ms));
CREATE TABLE oncewire_store_producers (
        store TEXT NOT NULL, source TEXT NOT NULL, producer TEXT NOT NULL, born_ms BIGINT NOT NULL,
        state TEXT NOT NULL, PRIMARY KEY (store, source, producer, born_ms));
INSERT INTO "oncewire_store_producers" VALUES('billing','orders','shop',1000,'[[[1,2]],[[3,4]],[],3,1795648745.4665916]');
CREATE TABLE oncewire_store_sources (
        store TEXT NOT NULL, source TEXT NOT NULL, position BIGINT NOT NULL, horizon_ms BIGINT NOT NULL,
        PRIMARY KEY (store, source));
INSERT INTO "oncewire_store_sources" VALUES('billing','orders',4,-1);
COMMIT;
