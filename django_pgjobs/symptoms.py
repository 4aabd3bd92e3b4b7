"""The raw SQL of `doctor`: what the server says of itself and of the tables of jobs.

Invariant: it changes nothing, needs no extension and no privilege beyond those of a worker, and reads the
catalogue, never the jobs.
"""

from __future__ import annotations

from django_pgjobs.statements import JOB

# Run by doctor, as all that follow. Raw: the server's own views, which have no model. An open transaction
# holds back what VACUUM may remove, by its snapshot or by having written. What other roles do is hidden from
# a role without pg_read_all_stats, but not how many transactions ago it began.
SNAPSHOTS = """
select what, name, detail, age, extract(epoch from clock_timestamp() - since)::float8 from (
    select 'session' as what, pid::text as name, concat_ws(' ', usename, nullif(application_name, ''),
            nullif(client_addr::text, ''), state) as detail,
        greatest(age(backend_xmin), age(backend_xid)) as age, xact_start as since
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
        and coalesce(backend_type, '') <> 'autovacuum worker'
  union all
    select 'prepared transaction', gid, owner, age(transaction), prepared
    from pg_prepared_xacts where database = current_database()
  union all
    select 'replication slot', slot_name, case when active then 'in use' else 'not in use' end, age(xmin), null
    from pg_replication_slots
  union all
    select 'standby', coalesce(nullif(application_name, ''), pid::text), client_addr::text,
        age(backend_xmin), null
    from pg_stat_replication
) holder
where age is not null order by age desc, since limit 1
"""

SEES_ALL = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage'), current_user"

# The options of the table count before the settings of the server.
_OPTION = f"""coalesce((select option_value from pg_class, pg_options_to_table(reloptions)
    where oid = '{JOB}'::regclass and option_name = 'autovacuum_{{name}}'), current_setting('{{setting}}'))"""


def _option(name: str, setting: str) -> str:
    return _OPTION.format(name=name, setting=setting)


VACUUM = f"""
select n_live_tup, n_dead_tup,
    {_option("enabled", "autovacuum")}::boolean and current_setting('autovacuum')::boolean
        and current_setting('track_counts')::boolean,
    {_option("vacuum_threshold", "autovacuum_vacuum_threshold")}::float8
        + {_option("vacuum_scale_factor", "autovacuum_vacuum_scale_factor")}::float8
        * greatest(0, reltuples),
    extract(epoch from clock_timestamp() - greatest(last_autovacuum, last_vacuum))::float8
from pg_class join pg_stat_all_tables on relid = oid where oid = '{JOB}'::regclass
"""

# An entry is a header of 8 bytes, its line pointer of 4, and its columns, in pages that are two thirds full.
# Without statistics a column counts as 16 bytes. The number of entries is that of the last VACUUM or ANALYZE.
INDEXES = f"""
select c.relname, pg_relation_size(c.oid),
    8192.0 * (2 + ceil(greatest(0, c.reltuples) * (12 + width.bytes) * 1.5 / 8192))
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
cross join lateral (
    select sum(8 * ceil(coalesce(s.avg_width, 16) / 8.0)) as bytes
    from pg_attribute a left join pg_stats s on s.schemaname = t.relnamespace::regnamespace::text
        and s.tablename = t.relname and s.attname = a.attname
    where a.attrelid = t.oid and a.attnum = any(i.indkey)
) width
where t.oid = '{JOB}'::regclass and c.reltuples >= 0 order by c.relname
"""

# What stands under these names, and whether it can be used: an index whose building failed cannot.
INDEX_NAMES = """
select c.relname, i.indisvalid and i.indisready
from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relname = any(%(names)s::text[]) and pg_table_is_visible(i.indrelid)
"""

# The texts of SQL functions, null where there is none.
FUNCTIONS = """
select asked.signature, p.prosrc
from unnest(%(signatures)s::text[]) asked(signature)
left join pg_proc p on p.oid = to_regprocedure(asked.signature) order by asked.signature
"""

# Run by schema, on a worker's own connection too. Raw: there no ORM is at hand. The first one is null where
# there is no such table, false where it is hidden from this role.
READS_MIGRATIONS = "select has_table_privilege(to_regclass('django_migrations'), 'select')"
MIGRATIONS = "select name from django_migrations where app = %(app)s"

# Run by the system checks. Which database of which server answers, and whether it can be written to: only there
# do notifications arrive.
PLACE = """
select system_identifier, (select oid from pg_database where datname = current_database()),
    pg_is_in_recovery()
from pg_control_system()
"""
ISOLATION = "select current_setting('transaction_isolation')"

CLOCK = "select extract(epoch from clock_timestamp())::float8"

# Run by `pgjobs grants` and the migration operations. It fails where there is no table.
PLACE_OF_TABLES = f"""
select n.nspname, pg_get_serial_sequence('{JOB}', 'id')
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = '{JOB}'::regclass
"""
ROLES = "select rolname from pg_roles where rolname = any(%(names)s::text[])"

# Run by rights: who this is, and which of these privileges it has not: the schema, the table or its sequence, some
# columns; and whether row security is on and no policy for the command is one of its. One that says `false`
# lets nobody see anything. Where the schema may not be used, no name of a table is found, unless it is
# looked up in the schema that is asked for.
RIGHTS = """
with needed as materialized (
    select * from jsonb_to_recordset(%(needed)s::jsonb)
        needed(position int, schema text, name text, command text, columns text[])
),
named as materialized (
    select needed.*,
        case when schema is null then to_regclass(name)::oid else (
            select oid from pg_class where relname = name and relnamespace = to_regnamespace(schema)) end as oid,
        case when schema is not null then
            case when not has_schema_privilege(to_regnamespace(schema)::oid, 'usage') then schema end
        when to_regclass(name) is null then (
            select nspname from pg_class c join pg_namespace n on n.oid = relnamespace
            where relname = name and not has_schema_privilege(n.oid, 'usage') limit 1) end as hidden_in
    from needed
),
asked as (
    select named.*, case
        when oid is null then null
        when command = 'usage' then not has_sequence_privilege(pg_get_serial_sequence(name, 'id'), command)
        when command = 'delete' or columns is not null then not has_table_privilege(oid, command)
            and columns is null
        else not has_any_column_privilege(oid, command) end as whole,
        case when oid is not null and command in ('select', 'insert', 'update') then (
            select array_agg(attname::text order by attnum) from pg_attribute
            where attrelid = named.oid and attnum > 0 and not attisdropped
                and (columns is null or attname = any(columns))
                and not has_column_privilege(oid, attnum, command)) end as lacking,
        command <> 'usage' and row_security_active(oid) and not exists (
            select from pg_policy where polrelid = named.oid and polpermissive
                and polcmd in ('*', case command when 'select' then 'r' when 'insert' then 'a'
                    when 'update' then 'w' else 'd' end)
                and coalesce(pg_get_expr(coalesce(polqual, polwithcheck), polrelid), '') <> 'false'
                and (0 = any(polroles) or exists (
                    select from unnest(polroles) of(role) where role <> 0 and pg_has_role(role, 'usage')))
        ) as unseen
    from named
)
select position, current_user::text, hidden_in, coalesce(whole, false), lacking, coalesce(unseen, false)
from asked order by position
"""
