//! The partitions of `settled`: one a month, made ahead of time.
//!
//! **Invariant:** a month without a partition settles all the same, into `settled_default`: nothing waits for these.

use sqlx::types::time::Date;
use sqlx::{AssertSqlSafe, PgTransaction};
use time::{Month, OffsetDateTime};

use super::Error;

/// The key of the advisory lock that keeps replicas from making the same; any number that nothing else here uses.
const LOCK: i64 = 0x7061_7274;

/// The months whose partitions should be there: the present one and the two that follow.
fn months(now: OffsetDateTime) -> [(i32, Month); 3] {
    let mut month = (now.year(), now.month());
    std::array::from_fn(|_| {
        let this = month;
        month = after(month);
        this
    })
}

fn after((year, month): (i32, Month)) -> (i32, Month) {
    (if month == Month::December { year + 1 } else { year }, month.next())
}

/// Makes the partitions that are missing; returns how many. Gives up on the lock of the table after two seconds: enqueues do not
/// take it, settlements do.
pub async fn make(db: &mut PgTransaction<'_>, now: OffsetDateTime) -> Result<u32, Error> {
    sqlx::query_scalar!(r#"select pg_advisory_xact_lock($1)::text as "locked""#, LOCK).fetch_one(&mut **db).await?;
    let mut made = 0;
    for (year, month) in months(now) {
        let name = format!("settled_{year}_{:02}", u8::from(month));
        let exists = sqlx::query_scalar!(r#"select to_regclass($1) is not null as "exists!""#, name);
        if exists.fetch_one(&mut **db).await? {
            continue;
        }
        let (next_year, next_month) = after((year, month));
        let first = |year, month| Date::from_calendar_date(year, month, 1).map_err(|error| sqlx::Error::Encode(error.into()));
        let (from, to) = (first(year, month)?, first(next_year, next_month)?);
        // Names and dates are made here, of numbers; DDL takes no parameters.
        let ddl = format!(
            "set local lock_timeout = '2s';
             create table {name} partition of settled for values from ('{from} 00:00:00+00') to ('{to} 00:00:00+00')"
        );
        sqlx::raw_sql(AssertSqlSafe(ddl)).execute(&mut **db).await?;
        made += 1;
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fleet;

    #[tokio::test]
    async fn three_months_are_made_once_and_a_year_ends_on_the_way() {
        let fleet = Fleet::new().await;
        let now = OffsetDateTime::from_unix_timestamp(1_798_000_000).expect("a time");
        assert_eq!(months(now), [(2026, Month::December), (2027, Month::January), (2027, Month::February)]);
        for expected in [3, 0] {
            let mut tx = fleet.pool.begin().await.expect("a transaction");
            assert_eq!(make(&mut tx, now).await.expect("a database"), expected);
            tx.commit().await.expect("a commit");
        }
    }
}
